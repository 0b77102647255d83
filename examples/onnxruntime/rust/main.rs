//! Runs a compiled model with the crate `ort` and the library of unpool; no Python is needed.
//!
//!     run_model LIBRARY MODEL SHAPE INPUT OUTPUT
//!
//! NOT RUN by the tests: written after the interface of ort 2.0, with its feature `load-dynamic`. The only lines that
//! concern unpool are the two marked with it.
use std::{env, error::Error, fs};

use ort::{session::Session, value::Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let shape: Vec<i64> = arguments[2].split(',').map(str::parse).collect::<Result<_, _>>()?;
    let content = fs::read(&arguments[3])?;
    let values: Vec<f32> = content.chunks_exact(4).map(|part| f32::from_ne_bytes(part.try_into().unwrap())).collect();

    let mut session = Session::builder()?
        .with_intra_threads(2)?
        .with_config_entry("unpool.trust_plans", "1")? // unpool: the file is yours
        .with_operator_library(&arguments[0])? // unpool: the operators
        .commit_from_file(&arguments[1])?;

    let outputs = session.run(ort::inputs![Tensor::from_array((shape, values))?])?;
    let (_, result) = outputs[0].try_extract_tensor::<f32>()?;
    let bytes: Vec<u8> = result.iter().flat_map(|value| value.to_ne_bytes()).collect();
    fs::write(&arguments[4], bytes)?;
    Ok(())
}
