/* Runs a model with onnxruntime's C API and the library of unpool; no Python is needed.
 *
 *     run_model [-e NAME=VALUE]... LIBRARY MODEL SHAPE INPUT OUTPUT [RUNS [THREADS]]
 *
 * INPUT has the float32 of an image in row-major order, SHAPE is its shape, such as 1,3,480,640, and OUTPUT gets the
 * float32 of the first output. RUNS runs are made in each of THREADS threads, on one session.
 *
 * -e sets an entry of the session's configuration: unpool.trust_plans=0 for a model that was not compiled.
 *
 * The only lines that concern unpool are the two marked with it. A program that has the header of onnxruntime includes
 * onnxruntime_c_api.h and calls the functions by name; this one is built without it, by their places in the table. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Status Status;
typedef struct ApiBase {
    void *(*const *(*get)(uint32_t))(void);
    const char *(*version)(void);
} ApiBase;
extern const ApiBase *OrtGetApiBase(void);

static void *(*const *api)(void);
#define GetErrorMessage ((const char *(*)(const Status *))api[2])
#define CreateEnv ((Status * (*)(int, const char *, void **)) api[3])
#define CreateSession ((Status * (*)(void *, const char *, const void *, void **)) api[7])
#define Run \
    ((Status * (*)(void *, const void *, const char *const *, const void *const *, size_t, const char *const *, size_t, void **)) api[9])
#define CreateSessionOptions ((Status * (*)(void **)) api[10])
#define SetIntraOpNumThreads ((Status * (*)(void *, int)) api[24])
#define SessionGetInputName ((Status * (*)(const void *, size_t, void *, char **)) api[36])
#define SessionGetOutputName ((Status * (*)(const void *, size_t, void *, char **)) api[37])
#define CreateTensorWithDataAsOrtValue \
    ((Status * (*)(const void *, void *, size_t, const int64_t *, size_t, int, void **)) api[49])
#define GetTensorMutableData ((Status * (*)(void *, void **)) api[51])
#define GetTensorShapeElementCount ((Status * (*)(const void *, size_t *)) api[64])
#define GetTensorTypeAndShape ((Status * (*)(const void *, void **)) api[65])
#define CreateCpuMemoryInfo ((Status * (*)(int, int, void **)) api[69])
#define GetAllocatorWithDefaultOptions ((Status * (*)(void **)) api[78])
#define ReleaseSession ((void (*)(void *))api[95])
#define ReleaseValue ((void (*)(void *))api[96])
#define ReleaseTensorTypeAndShapeInfo ((void (*)(void *))api[99])
#define AddSessionConfigEntry ((Status * (*)(void *, const char *, const char *)) api[130])
#define RegisterCustomOpsLibrary ((Status * (*)(void *, const char *)) api[228])

static void check(Status *status) {
    if (status == NULL) return;
    fprintf(stderr, "%s\n", GetErrorMessage(status));
    exit(1);
}

static void *session, *input;
static char *input_name, *output_name;
static long runs = 1;

static void *run(void *first_output) { /* keeps the output of the last run */
    void **output = first_output;
    for (long i = 0; i < runs; i++) {
        if (*output != NULL) ReleaseValue(*output);
        *output = NULL;
        check(Run(session, NULL, (const char *const *)&input_name, (const void *const *)&input, 1,
                  (const char *const *)&output_name, 1, output));
    }
    return NULL;
}

int main(int count, char **arguments) {
    void *environment, *options, *memory, *allocator, *info, *data, *outputs[64] = {NULL};
    int64_t dims[16], size = 1, rank = 0;
    size_t elements;
    pthread_t threads[64];
    float *values;
    FILE *file;
    char **entries = arguments;
    while (count > 2 && strcmp(arguments[1], "-e") == 0) count -= 2, arguments += 2;
    if (count < 6) return fprintf(stderr, "run_model [-e NAME=VALUE]... LIBRARY MODEL SHAPE INPUT OUTPUT [RUNS [THREADS]]\n"), 2;
    runs = count > 6 ? atol(arguments[6]) : 1;
    int thread_count = count > 7 ? atoi(arguments[7]) : 1;
    for (char *part = strtok(arguments[3], ","); part != NULL && rank < 16; part = strtok(NULL, ","))
        size *= dims[rank++] = atoll(part);
    values = malloc(size * sizeof *values);
    if ((file = fopen(arguments[4], "rb")) == NULL || fread(values, sizeof *values, size, file) != (size_t)size)
        return fprintf(stderr, "%s: expected %lld float32.\n", arguments[4], (long long)size), 1;
    fclose(file);
    api = OrtGetApiBase()->get(17);
    check(CreateEnv(3, "run_model", &environment));
    check(CreateSessionOptions(&options));
    check(SetIntraOpNumThreads(options, 2));
    check(AddSessionConfigEntry(options, "unpool.trust_plans", "1")); /* unpool: the file is yours */
    for (; entries < arguments; entries += 2) { /* before the library, which reads them */
        char *value = strchr(entries[2], '=');
        if (value == NULL) return fprintf(stderr, "%s: expected NAME=VALUE.\n", entries[2]), 2;
        *value = 0;
        check(AddSessionConfigEntry(options, entries[2], value + 1));
    }
    check(RegisterCustomOpsLibrary(options, arguments[1]));           /* unpool: the operators */
    check(CreateSession(environment, arguments[2], options, &session));
    check(GetAllocatorWithDefaultOptions(&allocator));
    check(SessionGetInputName(session, 0, allocator, &input_name));
    check(SessionGetOutputName(session, 0, allocator, &output_name));
    check(CreateCpuMemoryInfo(0, 0, &memory));
    check(CreateTensorWithDataAsOrtValue(memory, values, size * sizeof *values, dims, rank, 1, &input));
    for (int i = 1; i < thread_count; i++) pthread_create(&threads[i], NULL, run, &outputs[i]);
    run(&outputs[0]);
    for (int i = 1; i < thread_count; i++) pthread_join(threads[i], NULL);
    check(GetTensorTypeAndShape(outputs[0], &info));
    check(GetTensorShapeElementCount(info, &elements));
    ReleaseTensorTypeAndShapeInfo(info);
    check(GetTensorMutableData(outputs[0], &data));
    for (int i = 1; i < thread_count; i++) {
        void *other;
        check(GetTensorMutableData(outputs[i], &other));
        if (memcmp(data, other, elements * sizeof(float)) != 0) return fprintf(stderr, "thread %d differs\n", i), 1;
    }
    if ((file = fopen(arguments[5], "wb")) == NULL || fwrite(data, sizeof(float), elements, file) != elements || fclose(file))
        return fprintf(stderr, "%s: cannot be written.\n", arguments[5]), 1;
    for (int i = 0; i < thread_count; i++) ReleaseValue(outputs[i]);
    ReleaseSession(session);
    return 0;
}
