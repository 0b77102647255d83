/* Runs a node: finds the plan for the shapes of its inputs, or asks for one, and computes it in the threads of the session. */
#include "lock.h"
#include "export.h"
#include "node_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local void *running; /* context of the node that this thread computes */

/* Plans */

void shaped_drop(Shaped *shaped) {
    if (shaped == NULL || __atomic_sub_fetch(&shaped->uses, 1, __ATOMIC_ACQ_REL) != 0) return;
    plan_free(shaped->plan);
    packed_drop(shaped->packed);
    let_go(&shaped->owned, shaped->owned.id != 0);
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
    shaped_drop(replaced);
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
        if (shaped->packed == NULL) return shaped_drop(shaped), NULL;
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
    if (*code != OK) return shaped_drop(shaped), NULL;
    keep(kernel, shaped, other);
    return shaped;
}

/* Runs */

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
        shaped_drop(shaped);
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
                shaped_drop(other);
                if (code == OK && shaped->plan != NULL) status = run(shaped, call, &is_done);
            }
            if (code == OK && status == NULL && !is_done) code = current->compute(call);
        }
        running = before;
        leave();
        if (code != OK) status = fail(code, call->message);
    }
    shaped_drop(shaped);
    return status;
}

OrtStatus *node_compute(void *own, void *context) {
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
