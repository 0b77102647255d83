/* MaxPool, MaxUnpool and ConvTranspose of unpool for onnxruntime: the options of the library, for C and C++.
 *
 *     ort->AddSessionConfigEntry(options, UNPOOL_EXACT, "1");
 *     ort->RegisterCustomOpsLibrary_V2(options, "libunpool.so");
 *
 * An option is an entry of a session's configuration, which is set before the library is registered. Where there is no
 * such entry, a variable of the environment stands for it: UNPOOL_EXACT for unpool.exact. */
#ifndef UNPOOL_H
#define UNPOOL_H

#define UNPOOL_EXACT "unpool.exact"             /* 1: without fast algorithms, and every MaxPool by unpool; 0 */
#define UNPOOL_COMPAT "unpool.compat"           /* ort: onnxruntime's results where it differs from the standard; spec */
#define UNPOOL_INDEX_SPACE "unpool.index_space" /* what MaxUnpool's indices count in: output, inferred; auto */
#define UNPOOL_OPSET "unpool.opset"             /* of the models, a number, which onnxruntime does not tell; not set */
#define UNPOOL_TRUST_PLANS "unpool.trust_plans" /* 1: run compiled models, whose plans are code, and these alone; 0 */
#define UNPOOL_DOMAINS "unpool.domains"         /* unpool: only nodes of the domain unpool; all */

#ifdef __cplusplus
extern "C" {
#endif

#ifndef UNPOOL_API
#define UNPOOL_API
#endif

struct OrtStatus;
struct OrtSessionOptions;
struct OrtApiBase;

/* What onnxruntime calls. A program that links the library passes it to onnxruntime, or calls it itself. The library
 * exports some more functions, whose names begin with unpool_: they are for the Python package of the same release. */
UNPOOL_API struct OrtStatus *RegisterCustomOps(struct OrtSessionOptions *options, const struct OrtApiBase *base);

#ifdef __cplusplus
}
#endif
#endif
