/* Settings of a session: entries of its configuration, read when the library is registered. Nodes do not say in which
 * opset a model is written. */
#include "node.h"

/* The entries of options, or variables of the environment where there is none; a status for a wrong value. */
OrtStatus *settings_read(const void *options, Settings *settings);

/* A status for an entry of the session of a node that was set after the library had read them, which onnxruntime 1.24 and
 * later tell: it would have no effect, or one on some of the nodes. */
OrtStatus *settings_check(const Settings *settings, const void *info);
