#define _GNU_SOURCE
#include "export.h"
#include "request.h"

#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
__declspec(dllimport) unsigned long __stdcall GetActiveProcessorCount(unsigned short);
static int64_t count_cores(void) { return GetActiveProcessorCount(0xffff); }
#else
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
static int64_t count_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
}
#else
static int64_t count_cores(void) { return sysconf(_SC_NPROCESSORS_ONLN); }
#endif
#endif

enum { REQUEST_ABI = 1, HEAD = 2, FIRST_ROOM = 1 << 12, ARRAY_WORDS = 7 };
static const int64_t most_words = (int64_t)1 << 22, any_output = (int64_t)1 << 36; /* bytes of outputs, without Python */

typedef int64_t (*Entry)(const int64_t *words, int64_t first, int64_t stop);

static const int64_t *table; /* of kernels: the ABI, the number of rows, and rows of a number and an address */
static int64_t may_compile, cores, largest_output;
static int is_set; /* by Python */

/* Let the kernels of a table plan nodes, NULL for none: Python has verified their library. `can_compile` says whether it
 * makes kernels that the table lacks; outputs with more bytes than `largest` are left to it. */
EXPORT void unpool_set_kernels(const int64_t *kernels, int64_t can_compile, int64_t core_count, int64_t largest) {
    __atomic_store_n(&table, NULL, __ATOMIC_SEQ_CST);
    is_set = 1, may_compile = can_compile, cores = core_count, largest_output = largest;
    __atomic_store_n(&table, kernels != NULL && kernels[0] == PLAN_ABI ? kernels : NULL, __ATOMIC_SEQ_CST);
}

int native_is_new(void) { return !is_set && __atomic_load_n(&table, __ATOMIC_SEQ_CST) == NULL; }

void native_open(void) {
    const int64_t *found = kernels_table();
    if (found == NULL || found[0] != PLAN_ABI) return;
    cores = count_cores(), largest_output = any_output;
    __atomic_store_n(&table, found, __ATOMIC_SEQ_CST);
}

static int64_t address_of_kernel(const int64_t *rows, int64_t number) {
    for (int64_t i = 0; i < rows[1]; i++)
        if (rows[HEAD + 2 * i] == number) return rows[HEAD + 2 * i + 1];
    return 0;
}

/* Attributes */

const Value *value_of(const Node *node, const char *name) {
    for (int64_t i = 0; i < node->attributes; i++)
        if (strcmp(node->values[i].name, name) == 0 && node->values[i].count != -1) return &node->values[i];
    return NULL;
}

int64_t choice_of(const Value *value, const char *otherwise, const char *const *choices) {
    const char *text = value == NULL ? otherwise : (const char *)value->values;
    if (value != NULL && (value->count <= 0 || strlen(text) != (size_t)value->count)) return -1;
    for (int64_t i = 0; choices[i] != NULL; i++)
        if (strcmp(text, choices[i]) == 0) return i;
    return value == NULL && text[0] == 0 ? 0 : -1;
}

int64_t number_of(const Value *value, int64_t limit, int64_t otherwise) {
    if (value == NULL) return otherwise;
    if (value->count != 1) return -2;
    return *(int64_t *)value->values < 0 || *(int64_t *)value->values > limit ? -2 : *(int64_t *)value->values;
}

int add_list(Request *request, int word, int64_t count, const int64_t *values, int64_t most) {
    request->words[word] = count;
    if (count < -1 || count > most || request->count + count > MAX_REQUEST) return 0;
    if (count > 0) memcpy(&request->words[request->count], values, count * sizeof *values), request->count += count;
    return 1;
}

int add_value(Request *request, int word, const Value *value, int64_t most) {
    return value == NULL ? add_list(request, word, -1, NULL, 0) : add_list(request, word, value->count, value->values, most);
}

static int64_t planner_of(const Node *node) {
    static const char *const names[] = {"MaxPool", "MaxUnpool", "ConvTranspose"};
    for (int64_t i = 0; i < 3; i++)
        if (strcmp(node->operator, names[i]) == 0) return PLAN_MAX_POOL + i;
    return 0;
}

static void set_process(Request *request) {
    request->words[R_MAY_COMPILE] = may_compile, request->words[R_CORES] = cores;
    request->words[R_LARGEST_OUTPUT] = largest_output;
}

static int is_known(const Request *request);

void native_describe(const Node *node, Request *request) {
    static const char *const paddings[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", NULL};
    static const char *const compats[] = {"spec", "ort", NULL}, *const spaces[] = {"auto", "output", "inferred", NULL};
    int64_t planner = planner_of(node), *words = request->words, is_last = node->domain == CHANNELS_LAST;
    int is_active = value_of(node, "activation") != NULL || value_of(node, "activation_params") != NULL, is_fine;
    const Value *padding = value_of(node, "auto_pad");
    int is_empty = padding != NULL && padding->count == 0; /* as if it were not set */
    memset(request, 0, sizeof *request);
    if (planner == 0 || __atomic_load_n(&table, __ATOMIC_SEQ_CST) == NULL) return;
    if (planner != PLAN_CONV_TRANSPOSE && is_active) return;
    request->node = node, request->count = planner == PLAN_CONV_TRANSPOSE ? CONV_TRANSPOSE_WORDS : R_WORDS;
    set_process(request);
    if (node->domain == OWN) is_last = number_of(value_of(node, "channels_last"), 1, 0);
    words[R_VERSION] = REQUEST_ABI, words[R_OUTPUTS] = node->outputs, words[R_CHANNELS_LAST] = is_last;
    words[R_DOMAIN] = node->domain;
    words[R_IS_ORT] = choice_of(value_of(node, "compat"), node->settings[COMPAT], compats);
    words[R_INDEX_SPACE] = choice_of(value_of(node, "index_space"), node->settings[INDEX_SPACE], spaces);
    words[R_OPSET] = number_of(value_of(node, "opset"), 1 << 20, atoi(node->settings[OPSET]));
    words[R_PADDING] = choice_of(is_empty ? NULL : padding, "", paddings);
    words[R_CEIL] = number_of(value_of(node, "ceil_mode"), 1, -1);
    words[R_COLUMN_MAJOR] = number_of(value_of(node, "storage_order"), 1, -1);
    is_fine = is_last >= 0 && words[R_IS_ORT] >= 0 && words[R_INDEX_SPACE] >= 0 && words[R_OPSET] >= 0 &&
              words[R_PADDING] >= 0 && words[R_CEIL] >= -1 && words[R_COLUMN_MAJOR] >= -1 &&
              (value_of(node, "opset") == NULL || words[R_OPSET] > 0) &&
              add_value(request, R_KERNEL, value_of(node, "kernel_shape"), MAX_RANK) &&
              add_value(request, R_STRIDES, value_of(node, "strides"), MAX_RANK) &&
              add_value(request, R_DILATIONS, value_of(node, "dilations"), MAX_RANK) &&
              add_value(request, R_PADS, value_of(node, "pads"), 2 * MAX_RANK);
    if (is_fine) request->planner = planner;
    if (is_fine && !(planner == PLAN_CONV_TRANSPOSE ? conv_transpose_describe(request) : is_known(request)))
        request->planner = 0;
}

/* Plans */

static Plan *linked(const void *blob, int64_t size, const int64_t *rows) {
    char message[1];
    Plan *plan = plan_read(blob, size, message, sizeof message);
    int64_t count = plan == NULL ? 0 : plan_kernel_count(plan), *addresses = calloc(count + 1, sizeof *addresses);
    int is_whole = plan != NULL && addresses != NULL;
    for (int64_t i = 0; is_whole && i < count; i++) {
        int64_t number;
        memcpy(&number, plan_kernel(plan, i), sizeof number);
        is_whole = (addresses[i] = address_of_kernel(rows, number)) != 0;
    }
    if (is_whole) plan_link(plan, addresses);
    free(addresses);
    if (is_whole) return plan;
    return plan_free(plan), NULL;
}

static void put_array(int64_t *words, const void *data, int64_t count) { /* a flat array of int64, as a kernel takes it */
    words[2] = words[5] = count, words[3] = words[6] = sizeof(int64_t), words[4] = (intptr_t)data;
}

Plan *plan_request(const Request *request) {
    const int64_t *rows = __atomic_load_n(&table, __ATOMIC_SEQ_CST);
    Entry planner = rows == NULL ? NULL : (Entry)(intptr_t)address_of_kernel(rows, request->planner);
    Plan *plan = NULL;
    for (int64_t room = FIRST_ROOM, size = 0; planner != NULL && room <= most_words; room = size / 8) {
        int64_t words[2 * ARRAY_WORDS] = {0}, *out = calloc(room, sizeof *out);
        if (out == NULL) return NULL;
        put_array(words, request->words, request->count);
        put_array(words + ARRAY_WORDS, out, room);
        size = planner(words, 0, 1);
        if (size > 0 && size / 8 <= room) plan = linked(out, size, rows);
        free(out);
        if (size <= 0 || size % 8 != 0 || size / 8 <= room) return plan;
    }
    return NULL;
}

int add_tensor(Request *request, int word, const Tensor *tensor) {
    return tensor->data != NULL && add_list(request, word, tensor->rank, tensor->dims, MAX_RANK);
}

Plan *native_plan(const Request *node, const Call *call, const int64_t *key, int64_t count, int is_alone, Plan **packing) {
    const Tensor *tensors = call->tensors, *shape = call->inputs == 3 ? &tensors[2] : NULL;
    Request request = *node;
    *packing = NULL;
    if (request.planner == 0 || call->inputs < 1 || call->inputs > 3) return NULL;
    set_process(&request);
    if (request.planner == PLAN_CONV_TRANSPOSE) return conv_transpose_plan(&request, call, key, count, is_alone, packing);
    request.words[R_INPUTS] = call->inputs, request.words[R_TYPE] = tensors[0].type, request.words[R_INDICES] = request.words[R_SHAPE] = -1;
    if (!add_tensor(&request, R_X, &tensors[0])) return NULL;
    if (call->inputs > 1) {
        request.words[R_INDEX_TYPE] = tensors[1].type;
        if (!add_tensor(&request, R_INDICES, &tensors[1])) return NULL;
    }
    if (shape != NULL && shape->data != NULL) { /* which `key_of` has checked */
        if (!add_list(&request, R_SHAPE, shape->dims[0], shape->data, MAX_RANK)) return NULL;
    }
    return add_list(&request, R_KEY, count, key, MAX_KEY) ? plan_request(&request) : NULL;
}

int64_t least_size(const Node *node, int64_t rank, int64_t axis) {
    const Value *strides = value_of(node, "strides"), *pads = value_of(node, "pads");
    int64_t stride = strides != NULL && strides->count == rank ? ((int64_t *)strides->values)[axis] : 1, begin = 0, end = 0;
    if (pads != NULL && pads->count == 2 * rank)
        begin = ((int64_t *)pads->values)[axis], end = ((int64_t *)pads->values)[rank + axis];
    if (stride < 1 || begin < 0 || begin >> 31 || end < 0 || end >> 31) return 0;
    return 1 + (begin + end + stride - 1) / stride;
}

/* Whether a planner knows the attributes: it plans one window. */
static int is_known(const Request *request) {
    int64_t rank = request->words[R_KERNEL], at = R_WORDS, key = 0, value = 0;
    const int64_t *kernel = &request->words[at], *dilations;
    Tensor tensors[2] = {0};
    Call call = {.inputs = request->planner == PLAN_MAX_UNPOOL ? 2 : 1, .tensors = tensors};
    Plan *plan, *packing;
    if (rank < 1 || rank > MAX_RANK - 2) return 0;
    at += rank + (request->words[R_STRIDES] > 0 ? request->words[R_STRIDES] : 0);
    dilations = request->words[R_DILATIONS] == rank ? &request->words[at] : NULL;
    for (int64_t i = 0; i < 2; i++) {
        tensors[i].data = &value, tensors[i].type = i ? INT64 : FLOAT, tensors[i].rank = rank + 2;
        for (int64_t axis = 0; axis < rank + 2; axis++) tensors[i].dims[axis] = 1;
    }
    for (int64_t axis = 0; axis < rank && request->planner == PLAN_MAX_POOL; axis++) {
        int64_t size = kernel[axis], dilation = dilations == NULL ? 1 : dilations[axis];
        if (size < 1 || size >> 31 || dilation < 1 || dilation >> 31) return 0;
        tensors[0].dims[(request->words[R_CHANNELS_LAST] ? 1 : 2) + axis] = (size - 1) * dilation + 1;
    }
    for (int64_t axis = 0; axis < rank && request->planner == PLAN_MAX_UNPOOL; axis++) {
        int64_t size = least_size(request->node, rank, axis);
        if (size == 0) return 0;
        tensors[0].dims[(request->words[R_CHANNELS_LAST] ? 1 : 2) + axis] = tensors[1].dims[2 + axis] = size;
    }
    plan = native_plan(request, &call, &key, 1, 1, &packing);
    return plan != NULL ? plan_free(plan), 1 : 0;
}
