// Runs a compiled model with Microsoft.ML.OnnxRuntime and the library of unpool; no Python is needed.
//
//     dotnet run -- LIBRARY MODEL SHAPE INPUT OUTPUT
//
// NOT RUN by the tests: written after the interface of Microsoft.ML.OnnxRuntime 1.31. The only lines that concern unpool
// are the two marked with it.
using System.Runtime.InteropServices;
using Microsoft.ML.OnnxRuntime;

var shape = args[2].Split(',').Select(long.Parse).ToArray();
var values = MemoryMarshal.Cast<byte, float>(File.ReadAllBytes(args[3])).ToArray();

using var options = new SessionOptions { IntraOpNumThreads = 2 };
options.AddSessionConfigEntry("unpool.trust_plans", "1"); // unpool: the file is yours
options.RegisterCustomOpLibrary(args[0]); // unpool: the operators
using var session = new InferenceSession(args[1], options);

using var input = OrtValue.CreateTensorValueFromMemory(values, shape);
using var run = new RunOptions();
var inputs = new Dictionary<string, OrtValue> { [session.InputNames[0]] = input };
using var outputs = session.Run(run, inputs, new[] { session.OutputNames[0] });
File.WriteAllBytes(args[4], MemoryMarshal.AsBytes(outputs[0].GetTensorDataAsSpan<float>()).ToArray());
