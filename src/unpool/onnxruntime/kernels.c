#define _GNU_SOURCE
#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096, MAX_LIBRARIES = 8, DIGITS = 64, PLACES = 3 };

static const char *const places[PLACES] = {"", "../libraries/", "../../libraries/"}; /* from the folder of this library */

#if defined(_WIN32)
typedef void *Module;
__declspec(dllimport) Module __stdcall LoadLibraryA(const char *);
__declspec(dllimport) void *__stdcall GetProcAddress(Module, const char *);
__declspec(dllimport) int __stdcall GetModuleHandleExA(unsigned long, const char *, Module *);
__declspec(dllimport) unsigned long __stdcall GetModuleFileNameA(Module, char *, unsigned long);
static void *open_library(const char *path) { return LoadLibraryA(path); }
static void *address_of(void *library, const char *name) { return GetProcAddress(library, name); }
static int own_path(char *path) {
    enum { FROM_ADDRESS = 4, UNCHANGED_COUNT = 2 };
    Module own;
    return GetModuleHandleExA(FROM_ADDRESS | UNCHANGED_COUNT, (const char *)&own_path, &own) &&
           GetModuleFileNameA(own, path, PATH) < PATH;
}
#else
#include <dlfcn.h>
#if defined(__linux__) /* glibc before 2.34 has them in another library, which onnxruntime brings along */
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dladdr
#endif
static void *open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static void *address_of(void *library, const char *name) { return dlsym(library, name); }
static int own_path(char *path) {
    Dl_info info;
    if (&dladdr == NULL || !dladdr((void *)&kernels_link, &info) || strlen(info.dli_fname) >= PATH) return 0;
    strcpy(path, info.dli_fname);
    return 1;
}
#endif

static struct { /* that were opened */
    char name[DIGITS];
    void *library;
} opened[MAX_LIBRARIES];

/* The library with this file name, and the symbol that all have; NULL, and a sentence. */
static void *find_library(const char *name, char *message, int64_t room) {
    static int lock;
    char own[PATH], path[2 * PATH];
    void *library = NULL;
    int number = 0;
    if (name[0] == 0 || strpbrk(name, "/\\:") != NULL || strlen(name) >= DIGITS || !own_path(own)) {
        snprintf(message, room, "unpool: the plan names no library of kernels. Compile the model again.");
        return NULL;
    }
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    while (number < MAX_LIBRARIES && opened[number].library != NULL && strcmp(opened[number].name, name) != 0) number++;
    if (number < MAX_LIBRARIES) library = opened[number].library;
    for (int place = 0; library == NULL && number < MAX_LIBRARIES && place < PLACES; place++) {
        char *end = own + strlen(own);
        while (end > own && end[-1] != '/' && end[-1] != '\\') end--;
        snprintf(path, sizeof path, "%.*s%s%s", (int)(end - own), own, places[place], name);
        library = open_library(path);
        if (library == NULL) continue;
        strcpy(opened[number].name, name);
        opened[number].library = library;
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    if (library == NULL)
        snprintf(message, room, "unpool: %s cannot be loaded. Put it into the folder of this library, or into libraries beside it.", name);
    return library;
}

/* 1 if the processor has the instructions of a library; then it can be called. */
static int can_run(void *library, const char *name) {
    int (*cpu_level)(void) = (int (*)(void))(intptr_t)address_of(library, "unpool_cpu_level");
    const char *level = strstr(name, "_v");
    int64_t *sizes = address_of(library, "unpool_python");
    if (cpu_level != NULL && level != NULL && cpu_level() < atoi(level + 2)) return 0;
    if (sizes != NULL && sizes[0] == 0) sizes[0] = 16, sizes[1] = 24; /* bytes before the fields of an object: no Python set them */
    return sizes != NULL;
}

/* 0, and a sentence, if the processor or the sources of a library are not those of a plan. */
static int is_fitting(void *library, const Plan *plan, char *message, int64_t room) {
    const char *sources = address_of(library, "unpool_sources"), *name = plan_library(plan);
    if (sources == NULL || strncmp(sources, plan_digest(plan), DIGITS) != 0) {
        snprintf(message, room, "unpool: the model was compiled by another release than %s. Compile it again.", name);
        return 0;
    }
    if (can_run(library, name)) return 1;
    snprintf(message, room, "unpool: the model was compiled for %s, which this processor cannot run. Compile it for x86-64-v%d.",
             name, ((int (*)(void))(intptr_t)address_of(library, "unpool_cpu_level"))());
    return 0;
}

#if defined(_WIN32)
#define SUFFIX ".dll"
#elif defined(__APPLE__)
#define SUFFIX ".dylib"
#else
#define SUFFIX ".so"
#endif

#if defined(__x86_64__) || defined(_M_X64)
static const char *const libraries[] = {"unpool_x86_64_v4" SUFFIX, "unpool_x86_64_v3" SUFFIX, "unpool_x86_64_v2" SUFFIX, NULL};
#else
static const char *const libraries[] = {"unpool_aarch64" SUFFIX, NULL};
#endif

const int64_t *kernels_table(void) {
    char message[1];
    for (int i = 0; libraries[i] != NULL; i++) {
        void *library = find_library(libraries[i], message, sizeof message);
        if (library != NULL && can_run(library, libraries[i])) return address_of(library, "unpool_kernels");
    }
    return NULL;
}

int kernels_link(Plan *plan, char *message, int64_t room) {
    void *library = find_library(plan_library(plan), message, room);
    int64_t count = plan_kernel_count(plan), *addresses;
    if (library == NULL || !is_fitting(library, plan, message, room)) return 0;
    if (plan_constant_count(plan) != 0) {
        snprintf(message, room, "unpool: the plan has constants of another process. Compile the model again.");
        return 0;
    }
    addresses = calloc(count + 1, sizeof *addresses);
    for (int64_t i = 0; i < count; i++) {
        if (addresses != NULL) addresses[i] = (intptr_t)address_of(library, plan_kernel(plan, i));
        if (addresses == NULL || addresses[i] == 0) {
            snprintf(message, room, "unpool: %s lacks %s. Compile the model again.", plan_library(plan), plan_kernel(plan, i));
            free(addresses);
            return 0;
        }
    }
    plan_link(plan, addresses);
    free(addresses);
    return 1;
}
