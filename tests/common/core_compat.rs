//! Structures of the kernel as `bpf/core_compat.bpf.h` has them.

/// Structures marked NT_RELOCATED and the names of their fields.
pub fn parse(header: &str) -> Vec<(String, Vec<String>)> {
    let mut structures = Vec::new();
    for part in header.split("\nstruct ").skip(1) {
        let Some((body, rest)) = part.split_once("\n}") else { continue };
        let Some((name, body)) = body.split_once(" {") else { continue };
        if !rest.starts_with(" NT_RELOCATED") {
            continue;
        }
        let mut fields = Vec::new();
        // An inner struct is one field: the name after its closing brace.
        let mut depth = 0;
        for line in body.lines().map(str::trim).filter(|line| !line.starts_with("/*")) {
            depth += line.matches('{').count();
            depth -= line.matches('}').count().min(depth);
            if depth == 0
                && let Some(line) = line.strip_suffix(';')
            {
                let word = line.rsplit([' ', '*']).next().unwrap_or(line);
                fields.push(word.split('[').next().unwrap_or(word).to_string());
            }
        }
        structures.push((name.to_string(), fields));
    }
    structures
}
