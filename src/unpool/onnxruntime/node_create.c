/* Creates the kernel of a node: reads its attributes and constants, and hands them to a planner. */
#include "kernels.h"
#include "node_kernel.h"
#include "settings.h"

#include <stdlib.h>
#include <string.h>

/* Attributes */

/* The count of an attribute that a function for its type does not find. For one of any other type, onnxruntime finds a
 * list without integers. */
static int64_t count_of_missing(const void *info, const char *name) {
    size_t count = 0;
    return release(KernelInfoGetAttributeArray_int64(info, name, NULL, &count)) ? -1 : -2;
}

static Value read_value(const void *info, const char *name, int kind) {
    Value value = {name, kind, -1, NULL};
    size_t count = 0; /* of text with the NUL at its end */
    int is_missing = 0;
    if (kind == INT_LIST) is_missing = release(KernelInfoGetAttributeArray_int64(info, name, NULL, &count));
    if (kind == FLOAT_LIST) is_missing = release(KernelInfoGetAttributeArray_float(info, name, NULL, &count));
    if (kind == TEXT_VALUE) is_missing = release(KernelInfoGetAttribute_string(info, name, NULL, &count));
    if (!is_missing && (value.values = calloc(count + 1, sizeof(int64_t))) != NULL) {
        if (kind == INT_VALUE) is_missing = release(KernelInfoGetAttribute_int64(info, name, value.values));
        if (kind == FLOAT_VALUE) is_missing = release(KernelInfoGetAttribute_float(info, name, value.values));
        if (kind == INT_LIST) is_missing = release(KernelInfoGetAttributeArray_int64(info, name, value.values, &count));
        if (kind == FLOAT_LIST) is_missing = release(KernelInfoGetAttributeArray_float(info, name, value.values, &count));
        if (kind == TEXT_VALUE) is_missing = release(KernelInfoGetAttribute_string(info, name, value.values, &count));
        value.count = kind == INT_VALUE || kind == FLOAT_VALUE ? 1 : kind == TEXT_VALUE ? (int64_t)count - 1 : (int64_t)count;
    }
    if (is_missing) value.count = count_of_missing(info, name);
    return value;
}

OrtStatus *read_tensor(const OrtValue *value, Tensor *tensor) {
    OrtShapeInfo *info = NULL;
    size_t rank = 0;
    int type = 0;
    OrtStatus *status = GetTensorTypeAndShape(value, &info);
    if (status == NULL) status = GetTensorElementType(info, &type);
    if (status == NULL) status = GetDimensionsCount(info, &rank);
    if (status == NULL && rank > MAX_RANK) status = fail(NOT_IMPLEMENTED, "unpool: expected 64 axes at most.");
    if (status == NULL) status = GetDimensions(info, tensor->dims, rank);
    if (status == NULL) status = GetTensorMutableData((OrtValue *)value, &tensor->data);
    tensor->type = type, tensor->rank = rank;
    if (info != NULL) ReleaseTensorTypeAndShapeInfo(info);
    if (status == NULL && tensor->data == NULL) tensor->data = tensor; /* without elements */
    return status;
}

/* Kernels */

void node_destroy(void *own) {
    Kernel *kernel = own;
    for (int i = 0; i < MAX_PLANS; i++) shaped_drop(kernel->plans[i]);
    for (int i = 0; kernel->node != NULL && i < kernel->node->attributes; i++) free(kernel->node->values[i].values);
    free(kernel->node);
    let_go(&kernel->owned, kernel->is_described);
}

/* A node of a compiled model has its plans in an attribute, one after the other. */
static OrtStatus *create_compiled(const Settings *settings, Value blobs, Kernel *kernel) {
    char message[MESSAGE] = "";
    int64_t at = 0, size;
    if (settings->values[TRUST_PLANS][0] != '1')
        return free(blobs.values),
               fail(NOT_IMPLEMENTED,
                    "unpool: this model has plans, which are code. If you trust the file, set the session's configuration "
                    "entry unpool.trust_plans to 1.");
    while (blobs.count > at && (size = plan_size((char *)blobs.values + at, blobs.count - at)) != 0) {
        Shaped *shaped = NULL;
        int64_t count;
        const int64_t *key;
        Plan *plan = plan_read((char *)blobs.values + at, size, message, MESSAGE);
        if (plan == NULL || !kernels_link(plan, message, MESSAGE)) return plan_free(plan), free(blobs.values), fail(FAIL, message);
        key = plan_key(plan, &count);
        if (kernel->count < MAX_PLANS) shaped = calloc(1, sizeof(Shaped) + count * sizeof *key);
        if (shaped == NULL)
            return plan_free(plan), free(blobs.values), fail(FAIL, "unpool: out of memory, or more than 8 plans of a node.");
        shaped->plan = plan, shaped->count = count, shaped->uses = 1;
        memcpy(shaped->key, key, count * sizeof *key);
        kernel->plans[kernel->count++] = shaped;
        at += size;
    }
    free(blobs.values);
    if (kernel->count == 0 || at != blobs.count) return fail(FAIL, "unpool: this plan is damaged. Compile the model again.");
    kernel->is_compiled = 1;
    return NULL;
}

/* The number of outputs, without those at the end whose names are empty, which are left out. */
static OrtStatus *count_outputs(const void *info, int64_t *count) {
    size_t outputs = 0;
    OrtStatus *status = KernelInfo_GetOutputCount(info, &outputs);
    for (; status == NULL && outputs > 1; outputs--) {
        char name[4] = "";
        size_t length = sizeof name;
        if (release(KernelInfo_GetOutputName(info, outputs - 1, name, &length)) || name[0] != 0) break;
    }
    *count = outputs;
    return status;
}

static OrtStatus *describe(const Operator *operator, const void *info, Node *node, int32_t *is_constant) {
    size_t inputs = 0;
    OrtStatus *status = count_outputs(info, &node->outputs);
    for (const Attribute *each = operator->attributes; each->name != NULL; each++)
        node->values[node->attributes++] = read_value(info, each->name, each->kind);
    if (status == NULL) status = KernelInfo_GetInputCount(info, &inputs);
    if (operator->sizes == STATED) return status; /* an engine keeps no constants */
    if (status == NULL && inputs > MAX_INPUTS) status = fail(NOT_IMPLEMENTED, "unpool: expected 8 inputs at most.");
    for (size_t i = 1; status == NULL && i < inputs; i++) {
        int found = 0;
        const OrtValue *value = NULL;
        if (release(KernelInfoGetConstantInput_tensor(info, i, &found, &value)) || !found) continue;
        status = read_tensor(value, &node->constants[i]);
        is_constant[i] = 1;
    }
    return status;
}

OrtStatus *describe_to_python(Kernel *kernel) {
    char message[MESSAGE] = "";
    OrtStatus *status = NULL;
    const Planner *current = enter();
    int code = current == NULL ? OK : current->create(kernel->node, message);
    if (current == NULL)
        status = fail(NOT_IMPLEMENTED, "unpool: without Python this node cannot be planned. Compile the model, or register "
                                       "with unpool.onnxruntime.register.");
    else if (code != OK)
        status = fail(code, message);
    else
        __atomic_store_n(&kernel->is_described, 1, __ATOMIC_RELAXED);
    leave();
    return status;
}

static void find_kernels(void) {
    const Planner *current = enter();
    if (current != NULL)
        current->set_kernels();
    else
        native_open();
    leave();
}

static OrtStatus *create_planned(int domain, const Settings *settings, const void *info, Kernel *kernel) {
    size_t size = MAX_NAME;
    Node *node = kernel->node = calloc(1, sizeof(Node));
    OrtStatus *status = NULL;
    if (node == NULL) return fail(FAIL, "unpool: out of memory.");
    release(KernelInfo_GetNodeName(info, kernel->name, &size));
    node->id = kernel->owned.id, node->name = kernel->name;
    node->operator= kernel->operator->name, node->domain = domain;
    for (int i = 0; i < SETTINGS; i++) node->settings[i] = settings->values[i];
    status = describe(kernel->operator, info, node, kernel->is_constant);
    if (status != NULL) return status;
    if (native_is_new()) find_kernels();
    native_describe(node, &kernel->request);
    if (kernel->request.planner == 0) return describe_to_python(kernel);
    if (kernel->operator->sizes != GROWN) /* a plan for a value of `output_shape` has to see it */
        memset(kernel->is_constant, 0, sizeof kernel->is_constant);
    return NULL;
}

OrtStatus *node_create(const Operator *operator, int domain, const Settings *settings, const void *info, void **result) {
    Kernel *kernel = *result = calloc(1, sizeof(Kernel));
    Value blobs = {.count = -1};
    OrtStatus *status;
    if (kernel == NULL) return fail(FAIL, "unpool: out of memory.");
    kernel->operator= operator, kernel->owned.id = new_id();
    status = settings_check(settings, info);
    if (status != NULL) return node_destroy(kernel), *result = NULL, status;
    if (domain == OWN) blobs = read_value(info, "plans", TEXT_VALUE);
    status = blobs.count == -1 ? create_planned(domain, settings, info, kernel) : create_compiled(settings, blobs, kernel);
    if (status != NULL) node_destroy(kernel), *result = NULL;
    return status;
}
