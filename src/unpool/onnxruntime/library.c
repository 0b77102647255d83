/* MaxPool, MaxUnpool, ConvTranspose and operators of unpool's own as custom operators of onnxruntime.
 *
 * onnxruntime loads this library for a session (`SessionOptions.register_custom_ops_library`), calls
 * `RegisterCustomOps`, and gives the nodes of three domains to the operators here: "" and com.ms.internal.nhwc, where
 * they take the place of onnxruntime's own, and "unpool". `operators.c` lists them.
 *
 *     create     the attributes of a node are read once, and handed to a planner
 *     infer      output types and shapes, as far as input shapes determine them
 *     compute    the steps of a plan run in the threads of the session (ParallelFor)
 *
 * A planner among the kernels is asked first (`native.c`). The other one is a table of functions that the process sets,
 * in Python by `unpool/onnxruntime/planner.py`. It knows everything, and says what is wrong with a node. */
#define _POSIX_C_SOURCE 200112L
#include "native.h"
#include "packed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
__declspec(dllimport) void Sleep(unsigned long);
static void pause_thread(void) { Sleep(1); }
#else
#include <time.h>
#define EXPORT __attribute__((visibility("default")))
static void pause_thread(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }
#endif

#define UNPOOL_API EXPORT
#include "unpool.h"

const void *const *api;
int api_number;

/* Settings of a session: entries of its configuration, read when the library is registered. Nodes do not say in which
 * opset a model is written. Without a setting ConvTranspose begins with opset 11, where its meaning changed for the last
 * time: onnxruntime runs older ones. */

static const struct {
    const char *name, *variable; /* of the environment, for hosts whose sessions have no entries */
    const char *choices;         /* NULL: a number above 0 */
} entries[SETTINGS] = {
    {UNPOOL_EXACT, "UNPOOL_EXACT", "0, 1"},
    {UNPOOL_COMPAT, "UNPOOL_COMPAT", "spec, ort"},
    {UNPOOL_INDEX_SPACE, "UNPOOL_INDEX_SPACE", "auto, output, inferred"},
    {UNPOOL_OPSET, "UNPOOL_OPSET", NULL},
    {UNPOOL_TRUST_PLANS, "UNPOOL_TRUST_PLANS", "0, 1"},
    {UNPOOL_DOMAINS, "UNPOOL_DOMAINS", "all, unpool"},
};

enum { NEW_CONV_TRANSPOSE = 11 };

/* onnxruntime computes a MaxPool of version 1 or 8 and later, without Indices, by a kernel of its own in the blocked
 * layout between Convs. It is fast, but loses NaN, pads in its own way, and divides by zero where no window fits. */
enum { UNBLOCKED_MAX_POOL = 2 };

typedef struct Op { /* OrtCustomOp of API 17, and what is ours */
    uint32_t version;
    void *(*create_v1)(void);
    const char *(*name_of)(const struct Op *);
    const char *(*provider)(const struct Op *);
    int (*input_type)(const struct Op *, size_t);
    size_t (*input_count)(const struct Op *);
    int (*output_type)(const struct Op *, size_t);
    size_t (*output_count)(const struct Op *);
    void (*compute_v1)(void);
    void (*destroy)(void *);
    int (*input_characteristic)(const struct Op *, size_t);
    int (*output_characteristic)(const struct Op *, size_t);
    int (*memory_type)(const struct Op *, size_t);
    int (*variadic[4])(const struct Op *); /* least counts, and whether types are one, of inputs and outputs */
    OrtStatus *(*create)(const struct Op *, const void *, const void *, void **);
    OrtStatus *(*compute)(void *, void *);
    OrtStatus *(*infer)(const struct Op *, void *);
    int (*start_version)(const struct Op *);
    int (*end_version)(const struct Op *);
    const Operator *operator;
    int32_t type, domain;
    const Settings *settings;
} Op;

/* The planner in Python */

typedef struct Answer { /* a plan for a new shape */
    int64_t id;       /* what the plan refers to lives until `unpool_forget` has it */
    const void *blob; /* for `plan_read` */
    int64_t size;     /* 0: there is no plan, so `compute` has to run */
    const int64_t *kernels;
    void *const *constants;
    int64_t fallbacks; /* that the plan should have, and has: with fewer it packs less, but may not be met */
} Answer;

typedef struct Planner { /* functions return OK or a code of OrtStatus, and write a message */
    int32_t (*create)(const Node *, char *message);
    int32_t (*plan)(Call *, const int64_t *key, int64_t count, Answer *);
    int32_t (*compute)(Call *);
    void (*set_kernels)(void); /* calls unpool_set_kernels */
} Planner;

static const Planner *planner;
static int64_t calls; /* of the planner that are running */

static const Planner *enter(void) { /* the planner, NULL if there is none; `leave` follows */
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&planner, __ATOMIC_SEQ_CST);
}

static void leave(void) { __atomic_sub_fetch(&calls, 1, __ATOMIC_SEQ_CST); }

static OrtStatus *fail(int code, const char *message) { return CreateStatus(code, message); }

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

static OrtStatus *read_tensor(const OrtValue *value, Tensor *tensor) {
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

typedef struct Owned { /* something that the planner in Python keeps things for, under its id; 0: it does not */
    int64_t id;
    struct Owned *next; /* of those that were destroyed */
} Owned;

enum { MAX_PLANS = 8, MAX_NAME = 512, ALL_FALLBACKS = 2 };

typedef struct Shaped { /* the plan of a node for some shapes */
    Owned owned;
    int64_t uses;
    Plan *plan; /* NULL: there is none, the planner computes */
    Packed *packed; /* its constants; NULL: it has none, or they are Python's */
    int64_t fallbacks;
    int64_t count, key[];
} Shaped;

typedef struct Kernel { /* a node of a session */
    Owned owned;
    const Operator *operator;
    int32_t lock, is_compiled, is_described; /* described: to Python */
    int32_t is_constant[MAX_INPUTS];
    Node *node; /* NULL if it is compiled */
    char name[MAX_NAME];
    Request request;          /* to the planner among the kernels */
    int64_t fallbacks;        /* that runs have needed */
    int64_t next, count;      /* of `plans` to replace, and their number */
    Shaped *plans[MAX_PLANS]; /* of the last shapes; of a compiled node, of all */
} Kernel;

static int64_t last_id;             /* of an Owned */
static Owned *destroyed;            /* nothing of the planner runs when a session ends: it asks for them later */
static _Thread_local void *running; /* context of the node that this thread computes */

static int64_t new_id(void) { return __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED); }

static void let_go(Owned *owned, int is_known) {
    if (!is_known) return free(owned);
    owned->next = __atomic_load_n(&destroyed, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&destroyed, &owned->next, owned, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
}

/* Call a function of the planner with the id of everything that was destroyed since the last time. */
EXPORT void unpool_forget(void (*forget)(int64_t)) {
    Owned *owned = __atomic_exchange_n(&destroyed, NULL, __ATOMIC_ACQUIRE);
    while (owned != NULL) {
        Owned *next = owned->next;
        forget(owned->id);
        free(owned);
        owned = next;
    }
}

static void acquire(int32_t *lock) { /* of something short; its holder may have lost its core */
    for (int polls = 1; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); polls++)
        if (polls % 4096 == 0) pause_thread();
}

static void unlock(int32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

static void drop(Shaped *shaped) { /* one use less */
    if (shaped == NULL || __atomic_sub_fetch(&shaped->uses, 1, __ATOMIC_ACQ_REL) != 0) return;
    plan_free(shaped->plan);
    packed_drop(shaped->packed);
    let_go(&shaped->owned, shaped->owned.id != 0);
}

static void destroy(void *own) {
    Kernel *kernel = own;
    for (int i = 0; i < MAX_PLANS; i++) drop(kernel->plans[i]);
    for (int i = 0; kernel->node != NULL && i < kernel->node->attributes; i++) free(kernel->node->values[i].values);
    free(kernel->node);
    let_go(&kernel->owned, kernel->is_described);
}

/* A node of a compiled model has its plans in an attribute, one after the other. */
static OrtStatus *create_compiled(const Op *op, Value blobs, Kernel *kernel) {
    char message[MESSAGE] = "";
    int64_t at = 0, size;
    if (op->settings->values[TRUST_PLANS][0] != '1')
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

static OrtStatus *describe(const Op *op, const void *info, Node *node, int32_t *is_constant) {
    size_t inputs = 0;
    OrtStatus *status = count_outputs(info, &node->outputs);
    node->operator= op->operator->name, node->domain = op->domain;
    for (const Attribute *each = op->operator->attributes; each->name != NULL; each++)
        node->values[node->attributes++] = read_value(info, each->name, each->kind);
    for (int i = 0; i < SETTINGS; i++) node->settings[i] = op->settings->values[i];
    if (status == NULL) status = KernelInfo_GetInputCount(info, &inputs);
    if (op->operator->sizes == STATED) return status; /* an engine keeps no constants */
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

/* Describe a node to the planner in Python, which checks its attributes, and says what is wrong with them. */
static OrtStatus *describe_to_python(Kernel *kernel) {
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

static OrtStatus *create_planned(const Op *op, const void *info, Kernel *kernel) {
    size_t size = MAX_NAME;
    Node *node = kernel->node = calloc(1, sizeof(Node));
    OrtStatus *status = NULL;
    if (node == NULL) return fail(FAIL, "unpool: out of memory.");
    release(KernelInfo_GetNodeName(info, kernel->name, &size));
    node->id = kernel->owned.id, node->name = kernel->name;
    status = describe(op, info, node, kernel->is_constant);
    if (status != NULL) return status;
    if (native_is_new()) find_kernels();
    native_describe(node, &kernel->request);
    if (kernel->request.planner == 0) return describe_to_python(kernel);
    if (op->operator->sizes != GROWN) /* a plan for a value of `output_shape` has to see it */
        memset(kernel->is_constant, 0, sizeof kernel->is_constant);
    return NULL;
}

/* An entry of the session that was set after the library had read them, which onnxruntime 1.24 and later tell: it would
 * have no effect, or one on some of the nodes. */
static OrtStatus *check_settings(const Settings *settings, const void *info) {
    char message[256];
    void *pairs = NULL;
    OrtStatus *status = NULL;
    if (api_number < TELLS_ENTRIES || release(KernelInfo_GetConfigEntries(info, &pairs)) || pairs == NULL) return NULL;
    for (int i = 0; status == NULL && i < SETTINGS; i++) {
        const char *value = GetKeyValue(pairs, entries[i].name);
        if (value == NULL || strcmp(value, settings->values[i]) == 0) continue;
        snprintf(message, sizeof message,
                 "unpool: the entry %s was set to %.32s after the library was registered. Set it before.",
                 entries[i].name, value);
        status = fail(INVALID_ARGUMENT, message);
    }
    ReleaseKeyValuePairs(pairs);
    return status;
}

static OrtStatus *create(const Op *op, const void *own_api, const void *info, void **result) {
    Kernel *kernel = *result = calloc(1, sizeof(Kernel));
    Value blobs = {.count = -1};
    OrtStatus *status;
    (void)own_api;
    if (kernel == NULL) return fail(FAIL, "unpool: out of memory.");
    kernel->operator= op->operator, kernel->owned.id = new_id();
    status = check_settings(op->settings, info);
    if (status != NULL) return destroy(kernel), *result = NULL, status;
    if (op->domain == OWN) blobs = read_value(info, "plans", TEXT_VALUE);
    status = blobs.count == -1 ? create_planned(op, info, kernel) : create_compiled(op, blobs, kernel);
    if (status != NULL) destroy(kernel), *result = NULL;
    return status;
}

/* The shapes of the inputs that are no constants, and the values of MaxUnpool's `output_shape`; 0 words if it is wrong,
 * and for an engine, which has no plans. */
static int64_t key_of(const Kernel *kernel, const Call *call, int64_t *key) {
    int64_t count = 0;
    if (kernel->operator->sizes == STATED) return 0;
    for (int64_t i = 0; i < call->inputs; i++) {
        const Tensor *tensor = &call->tensors[i];
        key[count++] = tensor->data == NULL ? -1 : tensor->type;
        key[count++] = tensor->data == NULL ? 0 : tensor->rank;
        for (int64_t axis = 0; tensor->data != NULL && axis < tensor->rank; axis++) key[count++] = tensor->dims[axis];
        if (i < data_count(kernel->operator) && kernel->operator->inputs[i] == 's' && tensor->data != NULL) {
            if (tensor->type != INT64 || tensor->rank != 1 || tensor->dims[0] > MAX_RANK) return 0;
            for (int64_t axis = 0; axis < tensor->dims[0]; axis++) key[count++] = ((int64_t *)tensor->data)[axis];
        }
    }
    return count;
}

static Shaped *find(Kernel *kernel, const int64_t *key, int64_t count) {
    Shaped *found = NULL;
    acquire(&kernel->lock);
    for (int i = 0; i < MAX_PLANS && found == NULL; i++) {
        Shaped *shaped = kernel->plans[i];
        if (shaped != NULL && shaped->count == count && memcmp(shaped->key, key, count * sizeof *key) == 0) found = shaped;
    }
    if (found != NULL) __atomic_add_fetch(&found->uses, 1, __ATOMIC_RELAXED);
    unlock(&kernel->lock);
    return found;
}

/* Keep a plan in the place of another one of the same key, or of the oldest. */
static void keep(Kernel *kernel, Shaped *shaped, const Shaped *other) {
    int64_t place = 0;
    Shaped *replaced;
    acquire(&kernel->lock);
    while (place < MAX_PLANS && (other == NULL || kernel->plans[place] != other)) place++;
    if (place == MAX_PLANS) place = kernel->next, kernel->next = (place + 1) % MAX_PLANS;
    replaced = kernel->plans[place];
    kernel->plans[place] = shaped;
    if (other != NULL) __atomic_store_n(&kernel->fallbacks, shaped->fallbacks, __ATOMIC_RELAXED);
    __atomic_add_fetch(&shaped->uses, 1, __ATOMIC_RELAXED);
    unlock(&kernel->lock);
    drop(replaced);
}

static int parallel_for(void *context, void (*task)(void *, size_t), size_t parts, void *data) {
    return !release(KernelContext_ParallelFor(context, task, parts, 0, data));
}

static int64_t bytes_of(const Tensor *tensor) {
    static const int64_t sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2}; /* by number of onnx.TensorProto */
    int64_t bytes = tensor->type < (int64_t)(sizeof sizes / sizeof *sizes) ? sizes[tensor->type] : 0;
    for (int64_t axis = 0; axis < tensor->rank; axis++) bytes *= tensor->dims[axis];
    return bytes;
}

static int is_alone(void) { /* without a planner in Python */
    int is_none = enter() == NULL;
    return leave(), is_none;
}

/* Constants for a new plan: those of another plan of the node, or what `packing` computes, which this takes. */
static Packed *pack(Kernel *kernel, Call *call, Plan *packing) {
    void *inputs[MAX_INPUTS] = {NULL};
    int64_t sizes[MAX_INPUTS] = {0};
    Packed *packed = NULL;
    acquire(&kernel->lock);
    for (int i = 0; i < MAX_PLANS && packed == NULL; i++) {
        Shaped *shaped = kernel->plans[i];
        if (shaped != NULL && shaped->packed != NULL && packed_is_of(shaped->packed, packing)) packed_use(packed = shaped->packed);
    }
    unlock(&kernel->lock);
    if (packed != NULL) return plan_free(packing), packed;
    for (int64_t i = 1; i < call->inputs; i++) {
        const Tensor *tensor = &kernel->node->constants[i];
        inputs[i] = tensor->data;
        if (inputs[i] != NULL) sizes[i] = bytes_of(tensor);
    }
    return packed_new(packing, inputs, sizes, parallel_for, call->context, call->message, MESSAGE);
}

/* The plan by kernels; NULL if they know none, and with a status if memory runs out. */
static Shaped *plan_natively(Kernel *kernel, Call *call, const int64_t *key, int64_t count, OrtStatus **status) {
    Plan *packing, *plan = native_plan(&kernel->request, call, key, count, is_alone(), &packing);
    Shaped *shaped = plan == NULL ? NULL : calloc(1, sizeof(Shaped) + count * sizeof *key);
    if (plan != NULL && shaped == NULL) *status = fail(FAIL, "unpool: out of memory.");
    if (shaped == NULL) return plan_free(packing), plan_free(plan), NULL;
    shaped->plan = plan, shaped->count = count, shaped->uses = 1, shaped->fallbacks = ALL_FALLBACKS;
    memcpy(shaped->key, key, count * sizeof *key);
    if (packing != NULL) {
        shaped->packed = pack(kernel, call, packing);
        if (shaped->packed == NULL && call->message[0] != 0) *status = fail(FAIL, call->message);
        if (shaped->packed == NULL) return drop(shaped), NULL;
        plan_bind(plan, packed_constants(shaped->packed));
    }
    keep(kernel, shaped, NULL);
    return shaped;
}

/* Ask Python for a plan; after one that was not met, for one with more fallbacks. */
static Shaped *ask(Kernel *kernel, Call *call, const int64_t *key, int64_t count, const Planner *current, const Shaped *other,
                   int *code) {
    Answer answer = {.fallbacks = other == NULL ? __atomic_load_n(&kernel->fallbacks, __ATOMIC_RELAXED) : other->fallbacks + 1};
    Shaped *shaped = calloc(1, sizeof(Shaped) + count * sizeof *key);
    *code = FAIL;
    if (shaped == NULL) return strcpy(call->message, "unpool: out of memory."), NULL;
    shaped->owned.id = answer.id = new_id(), shaped->count = count, shaped->uses = 1;
    memcpy(shaped->key, key, count * sizeof *key);
    *code = current->plan(call, key, count, &answer);
    shaped->fallbacks = answer.fallbacks;
    if (*code == OK && answer.size != 0) {
        shaped->plan = plan_read(answer.blob, answer.size, call->message, MESSAGE);
        if (shaped->plan != NULL)
            plan_link(shaped->plan, answer.kernels), plan_bind(shaped->plan, answer.constants);
        else
            *code = FAIL;
    }
    if (*code != OK) return drop(shaped), NULL;
    keep(kernel, shaped, other);
    return shaped;
}

static OrtStatus *run(Shaped *shaped, Call *call, int *is_done) {
    void *inputs[MAX_OPERANDS] = {NULL}, *outputs[MAX_OPERANDS] = {NULL};
    int64_t sizes[MAX_OPERANDS] = {0};
    OrtStatus *status = NULL;
    for (int64_t i = 0; i < call->inputs; i++) {
        inputs[i] = call->tensors[i].data;
        if (inputs[i] != NULL) sizes[i] = bytes_of(&call->tensors[i]);
    }
    for (int64_t i = 0; status == NULL && i < plan_output_count(shaped->plan); i++) {
        PlanOutput output = plan_output(shaped->plan, i);
        OrtValue *value = NULL;
        status = KernelContext_GetOutput(call->context, i, output.dims, output.rank, &value);
        if (status == NULL && value != NULL) status = GetTensorMutableData(value, &outputs[i]);
        if (outputs[i] == NULL) outputs[i] = call; /* without elements */
    }
    if (status == NULL) {
        int result = plan_run(shaped->plan, inputs, sizes, outputs, parallel_for, call->context, call->message, MESSAGE);
        *is_done = result == PLAN_DONE;
        if (result == PLAN_FAILED) status = fail(INVALID_ARGUMENT, call->message);
    }
    return status;
}

static OrtStatus *compute_compiled(Kernel *kernel, Call *call) {
    int64_t key[MAX_KEY], count = key_of(kernel, call, key), done;
    Shaped *shaped = find(kernel, key, count);
    int is_done = 0;
    OrtStatus *status = NULL;
    if (shaped != NULL) {
        status = run(shaped, call, &is_done);
        drop(shaped);
        if (status != NULL || is_done) return status;
        return fail(NOT_IMPLEMENTED, "unpool: the plan cannot compute these values. Run the model that was compiled instead.");
    }
    done = snprintf(call->message, MESSAGE, "unpool: the model was compiled for other shapes than [");
    for (int64_t axis = 0; axis < call->tensors[0].rank && done < MESSAGE; axis++)
        done += snprintf(call->message + done, MESSAGE - done, axis ? ", %lld" : "%lld", (long long)call->tensors[0].dims[axis]);
    if (done < MESSAGE) snprintf(call->message + done, MESSAGE - done, "] of this node's input. Compile it for this one, too.");
    return fail(INVALID_ARGUMENT, call->message);
}

static int lacks_fallbacks(const Shaped *shaped) { /* so that Python may know another plan */
    return shaped == NULL || (shaped->plan != NULL && shaped->fallbacks < ALL_FALLBACKS);
}

static OrtStatus *compute_call(Kernel *kernel, Call *call) {
    int64_t key[MAX_KEY], count = 0;
    int is_done = 0, code = FAIL;
    Shaped *shaped = NULL;
    OrtStatus *status = NULL;
    for (int64_t i = 0; status == NULL && i < call->inputs; i++) {
        const OrtValue *value = NULL;
        call->tensors[i].data = NULL;
        if (i < MAX_INPUTS && kernel->is_constant[i]) continue;
        status = KernelContext_GetInput(call->context, i, &value);
        if (status == NULL && value != NULL) status = read_tensor(value, &call->tensors[i]);
    }
    if (status != NULL) return status;
    if (kernel->is_compiled) return compute_compiled(kernel, call);
    count = key_of(kernel, call, key);
    if (count != 0) shaped = find(kernel, key, count);
    if (count != 0 && shaped == NULL && kernel->request.planner != 0) shaped = plan_natively(kernel, call, key, count, &status);
    if (status == NULL && shaped != NULL && shaped->plan != NULL) status = run(shaped, call, &is_done);
    if (status == NULL && !is_done && !__atomic_load_n(&kernel->is_described, __ATOMIC_RELAXED))
        status = describe_to_python(kernel);
    if (status == NULL && !is_done) {
        void *before = running;
        const Planner *current = enter();
        running = call->context;
        if (current == NULL) {
            strcpy(call->message, "unpool: the planner of this process has ended.");
        } else {
            code = OK;
            while (code == OK && status == NULL && !is_done && count != 0 && lacks_fallbacks(shaped)) {
                Shaped *other = shaped;
                shaped = ask(kernel, call, key, count, current, other, &code);
                drop(other);
                if (code == OK && shaped->plan != NULL) status = run(shaped, call, &is_done);
            }
            if (code == OK && status == NULL && !is_done) code = current->compute(call);
        }
        running = before;
        leave();
        if (code != OK) status = fail(code, call->message);
    }
    drop(shaped);
    return status;
}

static OrtStatus *compute(void *own, void *context) {
    char message[MESSAGE] = "";
    size_t inputs = 0;
    Tensor few[MAX_INPUTS];
    Kernel *kernel = own;
    OrtStatus *status = KernelContext_GetInputCount(context, &inputs);
    Call call = {.id = kernel->owned.id, .inputs = inputs, .tensors = few, .context = context, .message = message};
    if (status != NULL) return status;
    if (inputs > MAX_INPUTS && (call.tensors = malloc(inputs * sizeof(Tensor))) == NULL)
        return fail(FAIL, "unpool: out of memory.");
    status = compute_call(kernel, &call);
    if (call.tensors != few) free(call.tensors);
    return status;
}

/* An output of the running node: its memory, NULL with a message if onnxruntime refuses it. */
EXPORT void *unpool_output(Call *call, int64_t number, int64_t rank, const int64_t *dims) {
    OrtValue *value = NULL;
    void *data = NULL;
    OrtStatus *status = KernelContext_GetOutput(call->context, number, dims, rank, &value);
    if (status == NULL && value != NULL) status = GetTensorMutableData(value, &data);
    if (status != NULL) {
        snprintf(call->message, MESSAGE, "%s", GetErrorMessage(status));
        ReleaseStatus(status);
        return NULL;
    }
    return data == NULL ? call : data; /* without elements */
}

/* Jobs of a kernel of unpool: the words of `unpool/kernels/cpu/machine/task.py` */

enum { RUN_PART = 1, STATUS = 3, FIRST = 6, STOP = 7, THREADS = 8, PARTS = 9 };

static void run_part(void *data, size_t part) {
    int64_t *task = data, count = task[THREADS] * task[PARTS], jobs = task[STOP] - task[FIRST];
    int64_t start = task[FIRST] + jobs * (int64_t)part / count, stop = task[FIRST] + jobs * ((int64_t)part + 1) / count;
    ((void (*)(int64_t, int64_t, int64_t, int64_t))(intptr_t)task[RUN_PART])((intptr_t)task, start, stop, part);
}

/* Computes all parts of a task in the threads of the session whose node this thread computes. */
EXPORT int64_t unpool_run_parts(int64_t address) {
    int64_t *task = (int64_t *)(intptr_t)address, count = task[THREADS] * task[PARTS];
    if (running == NULL || release(KernelContext_ParallelFor(running, run_part, count, 0, task)))
        for (int64_t part = 0; part < count; part++) run_part(task, part);
    return 0;
}

/* Registration */

static void *create_v1(void) { return NULL; }
static void compute_v1(void) {}
static OrtStatus *infer(const Op *op, void *context) { /* whose status onnxruntime ignores */
    infer_outputs(op->operator, op->domain, op->settings->values[COMPAT], context);
    return NULL;
}
static const char *name_of(const Op *op) { return op->operator->name; }
static const char *provider(const Op *op) { return (void)op, "CPUExecutionProvider"; }
static size_t input_count(const Op *op) { return strlen(op->operator->inputs); }
static size_t output_count(const Op *op) { return strlen(op->operator->outputs); }
static int input_type(const Op *op, size_t input) { return type_of(op->operator->inputs[input], op->type); }
static int output_type(const Op *op, size_t output) { return type_of(op->operator->outputs[output], op->type); }
static int input_characteristic(const Op *op, size_t input) { return characteristic_of(op->operator->inputs[input]); }
static int output_characteristic(const Op *op, size_t output) { return characteristic_of(op->operator->outputs[output]); }
static int memory_type(const Op *op, size_t input) { return (void)op, (void)input, 0; }
static int least_count(const Op *op) { return op->operator->sizes != STATED; }
static int zero(const Op *op) { return (void)op, 0; }
static int last_version(const Op *op) { return (void)op, INT32_MAX; }

static int start_version(const Op *op) {
    if (op->domain == OWN) return 1;
    if (op->operator->sizes == POOLED && op->settings->values[EXACT][0] == '1') return UNBLOCKED_MAX_POOL;
    return op->operator->sizes == GROWN && op->settings->values[OPSET][0] == 0 ? NEW_CONV_TRANSPOSE : 1;
}

/* Operators and domains stay until the process ends, for the sessions that use them. */

typedef struct Registered {
    struct Registered *next;
    Settings settings;
    void *domains[DOMAINS];
    Op ops[DOMAINS][OPERATORS * TYPES];
} Registered;

static Registered *all_registered;

static OrtStatus *make(const Settings *settings, Registered **result) {
    const Op common = {.version = MIN_API, .create_v1 = create_v1, .name_of = name_of, .provider = provider,
        .input_type = input_type, .input_count = input_count, .output_type = output_type, .output_count = output_count,
        .compute_v1 = compute_v1, .destroy = destroy, .input_characteristic = input_characteristic,
        .output_characteristic = output_characteristic, .memory_type = memory_type, .variadic = {least_count, zero, least_count, zero},
        .create = create, .compute = compute, .infer = infer, .start_version = start_version, .end_version = last_version};
    Registered *made;
    for (made = all_registered; made != NULL; made = made->next)
        if (memcmp(&made->settings, settings, sizeof *settings) == 0) return *result = made, NULL;
    if ((made = calloc(1, sizeof *made)) == NULL) return fail(FAIL, "unpool: out of memory.");
    made->settings = *settings, made->next = all_registered;
    for (int d = 0; d < DOMAINS; d++) {
        OrtStatus *status = CreateCustomOpDomain(domain_names[d], &made->domains[d]);
        for (int i = 0; status == NULL && i < OPERATORS * TYPES; i++) {
            const Operator *operator = &operators[i % OPERATORS];
            Op *op = &made->ops[d][i];
            if (!(operator->domains >> d & 1) || i / OPERATORS >= operator->types) continue;
            *op = common;
            op->operator= operator, op->type = operator_types[i / OPERATORS], op->domain = d, op->settings = &made->settings;
            status = CustomOpDomain_Add(made->domains[d], op);
        }
        if (status != NULL) return status;
    }
    *result = all_registered = made;
    return NULL;
}

static int is_own(const Settings *settings) { return strcmp(settings->values[DOMAIN_NAMES], "unpool") == 0; }

static int is_choice(const char *choices, const char *value) {
    size_t length = strlen(value);
    if (choices == NULL) return value[0] > '0' && strspn(value, "0123456789") == length;
    for (const char *at = strstr(choices, value); at != NULL; at = strstr(at + 1, value))
        if ((at == choices || at[-1] == ' ') && (at[length] == 0 || at[length] == ',')) return 1;
    return 0;
}

static OrtStatus *read_settings(const void *options, Settings *settings) {
    memset(settings, 0, sizeof *settings);
    for (int i = 0; i < SETTINGS; i++) {
        char message[128], *value = settings->values[i];
        const char *variable = getenv(entries[i].variable), *choices = entries[i].choices;
        size_t size = SETTING;
        int is_set = 0, is_long = 0;
        OrtStatus *status = HasSessionConfigEntry(options, entries[i].name, &is_set);
        if (status != NULL) return status;
        if (is_set)
            is_long = release(GetSessionConfigEntry(options, entries[i].name, value, &size));
        else if (variable != NULL)
            is_long = snprintf(value, SETTING, "%s", variable) >= SETTING;
        if (!is_long && (value[0] == 0 || is_choice(choices, value))) continue;
        snprintf(message, sizeof message, "unpool: the %s %s is %s%s.", is_set ? "entry" : "variable",
                 is_set ? entries[i].name : entries[i].variable, choices ? "one of " : "the number of an opset",
                 choices ? choices : "");
        return fail(INVALID_ARGUMENT, message);
    }
    return NULL;
}

struct OrtApiBase {
    const void *const *(*get)(uint32_t);
    const char *(*version)(void);
};

EXPORT OrtStatus *RegisterCustomOps(struct OrtSessionOptions *options, const struct OrtApiBase *base) {
    static int lock;
    Settings settings;
    Registered *made = NULL;
    int is_set = 0;
    OrtStatus *status;
    while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE)) {}
    api_number = atoi(strchr(base->version(), '.') + 1);
    api = base->get(api_number);
    if (api_number < MIN_API)
        status = fail(NOT_IMPLEMENTED, "unpool: onnxruntime 1.17 or later is needed. Install a newer one.");
    else
        status = HasSessionConfigEntry(options, "unpool.registered", &is_set);
    if (status == NULL && !is_set) { /* a domain may be registered only once for a session */
        status = read_settings(options, &settings);
        if (status == NULL) status = make(&settings, &made);
        int is_ours = settings.values[TRUST_PLANS][0] == '1' || is_own(&settings);
        for (int d = is_ours ? OWN : STANDARD; status == NULL && d < DOMAINS; d++)
            status = AddCustomOpDomain(options, made->domains[d]);
        if (status == NULL) status = AddSessionConfigEntry(options, "unpool.registered", "1");
    }
    __atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
    return status;
}

/* The digest of the sources that the library was built from, by `unpool/onnxruntime/library.py`. */
EXPORT const char *unpool_sources(void) { return UNPOOL_SOURCES; }

/* Set the planner of this process; with NULL no function of the earlier one runs any more when this returns. */
EXPORT void unpool_set_planner(const Planner *functions) {
    __atomic_store_n(&planner, functions, __ATOMIC_SEQ_CST);
    while (functions == NULL && __atomic_load_n(&calls, __ATOMIC_SEQ_CST) != 0) pause_thread();
}
