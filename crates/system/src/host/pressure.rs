//! Pressure stall information: the `total` of /proc/pressure and of the pressure files of cgroup v2.

use std::io;

use crate::model::sample::Pressure;

/// The pressure that `read` gives the files of, by their name: "cpu" or "memory".
///
/// # Errors
/// The first file that cannot be read: with `psi=0` the files exist, and opening them fails with EOPNOTSUPP.
/// A text in another format is [`io::ErrorKind::InvalidData`].
pub fn read(mut read: impl FnMut(&str) -> io::Result<String>) -> io::Result<Pressure> {
    let (cpu, memory) = (read("cpu")?, read("memory")?);
    let known = |total: Option<u64>| {
        total.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a pressure file cannot be parsed"))
    };
    Ok(Pressure {
        cpu_some_us: known(total(&cpu, "some"))?,
        memory_some_us: known(total(&memory, "some"))?,
        memory_full_us: known(total(&memory, "full"))?,
    })
}

/// The total of a line such as `some avg10=0.12 avg60=0.05 avg300=0.01 total=123456`, in microseconds.
fn total(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
    line.split(' ').find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str =
        "some avg10=1.00 avg60=0.50 avg300=0.10 total=700\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
    const MEMORY: &str =
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";

    #[test]
    fn totals_are_taken_and_averages_are_not() {
        let text = |name: &str| Ok(if name == "cpu" { CPU } else { MEMORY }.to_string());
        let pressure = Pressure { cpu_some_us: 700, memory_some_us: 20, memory_full_us: 3 };
        assert_eq!(read(text).unwrap(), pressure);
    }

    #[test]
    fn a_file_without_a_total_is_an_error() {
        for text in ["", "some", "some total=x", "something total=3"] {
            assert_eq!(read(|_| Ok(text.into())).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text}");
        }
        assert!(read(|_| Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
