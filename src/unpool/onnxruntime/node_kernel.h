/* A node of a session: its kernel, as onnxruntime calls it, and its plans. */
#include "native.h"
#include "packed.h"
#include "planner.h"

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

OrtStatus *read_tensor(const OrtValue *value, Tensor *tensor);

/* Describe a node to the planner in Python, which checks its attributes, and says what is wrong with them. */
OrtStatus *describe_to_python(Kernel *kernel);

void shaped_drop(Shaped *shaped); /* one use less; of NULL, too */

/* What onnxruntime calls */

OrtStatus *node_create(const Operator *operator, int domain, const Settings *settings, const void *info, void **result);
OrtStatus *node_compute(void *kernel, void *context);
void node_destroy(void *kernel);
