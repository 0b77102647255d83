#include "request.h"

#include <string.h>

/* Words after those of all operators, as in `unpool/kernels/cpu/planner/conv_transpose_request.py`. */
enum { R_GROUP = R_WORDS, R_EXACT, R_HAS_AMX, R_PART, R_WEIGHTS, R_BIAS, R_BIAS_SIZE, R_OUTPUT_PADDING };
enum { PACK = 1, OF_RUN = 0, FINITE = 1, NOT_FINITE = 2, NO_BIAS = -1, LARGEST = INT32_MAX };

typedef struct Inputs { /* of a node; NULL: no bias */
    const Tensor *x, *w, *b;
    int64_t count;
} Inputs;

static int64_t all_finite(const Tensor *tensor) {
    static const uint64_t masks[] = {[FLOAT] = 0x7f800000, [FLOAT16] = 0x7c00, [DOUBLE] = 0x7ffull << 52, [BFLOAT16] = 0x7f80};
    uint64_t mask = masks[tensor->type];
    int64_t count = 1, wrong = 0;
    for (int64_t axis = 0; axis < tensor->rank; axis++) count *= tensor->dims[axis];
    if (tensor->type == FLOAT)
        for (int64_t i = 0; i < count; i++) wrong |= (((uint32_t *)tensor->data)[i] & mask) == mask;
    else if (tensor->type == DOUBLE)
        for (int64_t i = 0; i < count; i++) wrong |= (((uint64_t *)tensor->data)[i] & mask) == mask;
    else
        for (int64_t i = 0; i < count; i++) wrong |= (((uint16_t *)tensor->data)[i] & mask) == mask;
    return !wrong;
}

static int is_float(const Tensor *tensor) {
    return tensor->type == FLOAT || tensor->type == FLOAT16 || tensor->type == DOUBLE || tensor->type == BFLOAT16;
}

static const Tensor *constant_of(const Node *node, int input) {
    return node->constants[input].data == NULL ? NULL : &node->constants[input];
}

/* An activation and its parameters: 0 if there is none of this name. */
static int describe_activation(Request *request) {
    static const char *const names[] = {"", "Relu", "LeakyRelu", "Tanh", "Sigmoid", "Clip", "HardSigmoid", "HardSwish", NULL};
    const Value *name = value_of(request->node, "activation"), *params = value_of(request->node, "activation_params");
    int64_t count = params == NULL ? 0 : params->count;
    request->words[R_ACTIVATION] = choice_of(name, "", names), request->words[R_PARAMS] = count;
    if (name == NULL) return params == NULL;
    if (request->words[R_ACTIVATION] < 1 || request->node->domain == STANDARD || count < 0 || count > 2) return 0;
    for (int64_t i = 0; i < count; i++) {
        double value = ((float *)params->values)[i];
        memcpy(&request->words[R_PARAM_0 + i], &value, sizeof value);
    }
    return 1;
}

/* The plan for inputs; of a plan with constants, the one that computes them. */
static Plan *plan_inputs(const Request *node, Inputs inputs, const int64_t *key, int64_t count, int is_alone, Plan **packing) {
    const Value *shape = value_of(node->node, "output_shape"), *padding = value_of(node->node, "output_padding");
    int64_t *words;
    Request request = *node;
    Plan *plan = NULL;
    *packing = NULL, words = request.words;
    words[R_TYPE] = inputs.x->type, words[R_INDEX_TYPE] = inputs.w->type, words[R_INPUTS] = inputs.count;
    if (is_alone) words[R_EXACT] = 1; /* without Winograd's algorithm, which this planner lacks */
    words[R_HAS_AMX] = !is_alone && words[R_MAY_COMPILE]; /* kernels for it are compiled in Python */
    if (constant_of(node->node, 1) == NULL) words[R_WEIGHTS] = OF_RUN;
    words[R_BIAS] = inputs.b == NULL ? NO_BIAS : inputs.b == constant_of(node->node, 2);
    words[R_BIAS_SIZE] = inputs.b == NULL ? 0 : inputs.b->rank == 1 ? inputs.b->dims[0] : -1;
    if (inputs.b != NULL && inputs.b->type != inputs.x->type) return NULL;
    if (!add_tensor(&request, R_X, inputs.x) || !add_tensor(&request, R_INDICES, inputs.w) ||
        !add_value(&request, R_SHAPE, shape, MAX_RANK) || !add_value(&request, R_OUTPUT_PADDING, padding, MAX_RANK))
        return NULL;
    for (int part = 0; part <= PACK; part++) {
        Request whole = request;
        whole.words[R_PART] = part;
        if (!add_list(&whole, R_KEY, part == PACK ? 0 : count, key, MAX_KEY)) return plan_free(plan), NULL;
        if (part == PACK)
            *packing = plan_request(&whole);
        else if ((plan = plan_request(&whole)) == NULL || plan_constant_count(plan) == 0)
            return plan;
    }
    if (*packing != NULL && plan_output_count(*packing) >= plan_constant_count(plan)) return plan;
    plan_free(*packing), *packing = NULL;
    return plan_free(plan), NULL;
}

Plan *conv_transpose_plan(const Request *request, const Call *call, const int64_t *key, int64_t count, int is_alone, Plan **packing) {
    Inputs inputs = {call->tensors, constant_of(request->node, 1), constant_of(request->node, 2), call->inputs};
    if (call->inputs < 2 || call->inputs > 3 || inputs.x->data == NULL) return NULL;
    if (inputs.w == NULL) inputs.w = &call->tensors[1];
    if (call->inputs == 2) inputs.b = NULL;
    if (call->inputs == 3 && inputs.b == NULL && call->tensors[2].data != NULL) inputs.b = &call->tensors[2];
    return inputs.w->data == NULL ? NULL : plan_inputs(request, inputs, key, count, is_alone, packing);
}

/* The least number of spatial axes that a list of attributes is for; 0 if there is none. */
static int64_t axes_of(const Node *node) {
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "output_padding", "pads", "output_shape"};
    for (int i = 0; i < 6; i++) {
        const Value *value = value_of(node, names[i]);
        if (value != NULL) return i == 4 ? value->count / 2 : value->count;
    }
    return 1;
}

/* Whether the planner knows the attributes: it plans a small X, with a W in place of one that is not constant. */
static int is_known(const Request *request) {
    const Node *node = request->node;
    const Value *kernel = value_of(node, "kernel_shape"), *shape = value_of(node, "output_shape");
    int64_t value = 0, key = 0, group = request->words[R_GROUP], rank = axes_of(node), at;
    Tensor x = {.data = &value, .type = FLOAT}, w = {.data = &value, .type = FLOAT};
    Inputs inputs = {&x, constant_of(node, 1), constant_of(node, 2), 2};
    Plan *packing, *plan;
    if (inputs.w == NULL) {
        if (rank < 1 || rank > MAX_RANK - 2) return 0;
        w.rank = rank + 2, w.dims[0] = group, w.dims[1] = 1;
        if (shape != NULL && shape->count == rank + 2) w.dims[1] = ((int64_t *)shape->values)[1] / group;
        for (int64_t i = 0; i < rank; i++) w.dims[2 + i] = kernel == NULL ? 1 : ((int64_t *)kernel->values)[i];
        inputs.w = &w, inputs.b = NULL;
    }
    rank = inputs.w->rank - 2;
    if (rank < 1 || rank > MAX_RANK - 2) return 0;
    if (inputs.b != NULL) inputs.count = 3;
    x.type = inputs.w->type, x.rank = rank + 2;
    x.dims[0] = shape != NULL && shape->count == rank + 2 ? *(int64_t *)shape->values : 1;
    at = request->words[R_CHANNELS_LAST] ? 1 : 2;
    x.dims[request->words[R_CHANNELS_LAST] ? rank + 1 : 1] = inputs.w->dims[0];
    for (int64_t i = 0; i < rank; i++)
        if ((x.dims[at + i] = least_size(node, rank, i)) == 0) return 0;
    plan = plan_inputs(request, inputs, &key, 1, 1, &packing);
    plan_free(packing);
    return plan != NULL ? plan_free(plan), 1 : 0;
}

int conv_transpose_describe(Request *request) {
    const Node *node = request->node;
    const Tensor *w = constant_of(node, 1);
    int64_t is_exact = number_of(value_of(node, "exact"), 1, node->settings[EXACT][0] == '1');
    request->words[R_GROUP] = number_of(value_of(node, "group"), LARGEST, 1), request->words[R_EXACT] = is_exact;
    if (w != NULL && !is_float(w)) return 0;
    request->words[R_WEIGHTS] = w == NULL ? OF_RUN : all_finite(w) ? FINITE : NOT_FINITE;
    return request->words[R_GROUP] > 0 && is_exact >= 0 && describe_activation(request) && is_known(request);
}
