/* Requests to planners among the kernels, and their words: `unpool/kernels/cpu/planner/request.py` says what they mean. */
#include "native.h"

enum {
    R_VERSION, R_OUTPUTS, R_CHANNELS_LAST, R_IS_ORT, R_INDEX_SPACE, R_MAY_COMPILE, R_CORES, R_TYPE, R_OPSET, R_DOMAIN,
    R_PADDING, R_CEIL, R_COLUMN_MAJOR, R_ACTIVATION, R_PARAMS, R_PARAM_0, R_PARAM_1, R_INPUTS, R_KERNEL, R_STRIDES,
    R_DILATIONS, R_PADS, R_X, R_INDICES, R_INDEX_TYPE, R_SHAPE, R_KEY, R_LARGEST_OUTPUT, R_WORDS
};

enum { PLAN_MAX_POOL = 101, PLAN_MAX_UNPOOL, PLAN_CONV_TRANSPOSE, CONV_TRANSPOSE_WORDS = R_WORDS + 8 }; /* its words before lists */

/* Attributes */

const Value *value_of(const Node *node, const char *name); /* NULL if it is not set */

/* The place of a text among choices, 0 if it is not set, -1 if it is none of them. */
int64_t choice_of(const Value *value, const char *otherwise, const char *const *choices);

/* A number from 0 to a limit; `otherwise` if it is not set, and -2 if it is another one. */
int64_t number_of(const Value *value, int64_t limit, int64_t otherwise);

/* Append a list, whose length is a word, -1 where it is not set; 0 if it is longer than `most`. */
int add_list(Request *request, int word, int64_t count, const int64_t *values, int64_t most);
int add_value(Request *request, int word, const Value *value, int64_t most);
int add_tensor(Request *request, int word, const Tensor *tensor); /* its shape */

/* A size of an axis for which pads leave an output, where windows are scattered; 0 if there is none. */
int64_t least_size(const Node *node, int64_t rank, int64_t axis);

/* The plan for a request, with its kernels; NULL if the planner does not know, or a kernel is missing. */
Plan *plan_request(const Request *request);

/* ConvTranspose */

int conv_transpose_describe(Request *request); /* 0: the planner does not know these attributes */
Plan *conv_transpose_plan(const Request *request, const Call *call, const int64_t *key, int64_t count, int is_alone, Plan **packing);
