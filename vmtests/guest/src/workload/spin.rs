//! One busy thread pinned to each CPU given.
use serde_json::Value;
pub fn run(_arguments: &[&str]) -> Result<Value, String> {
    Err("x".into())
}
