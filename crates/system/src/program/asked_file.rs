//! Small files that a helper process reads and replaces: their file system may hang, and then the result is a
//! reason.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::guard::{self, Owner};
use super::helper::{self, Failure, HelperProcess, OWN_PROGRAM};

/// The name under which the tool starts itself to read and replace files.
pub const NAME: &str = "numatop-ng-files";

/// Bytes of a file.
pub const FILE_MAX: u64 = 64 << 10;

/// A file system that takes longer does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
enum Question {
    Read(PathBuf),
    /// A file that is to have this text.
    Replace(PathBuf, String),
    /// Whether the file system of this path answers.
    Probe(PathBuf),
}

/// The text of the file and its place, or an errno and a description.
type Answer = Result<(String, PathBuf), (Option<i32>, String)>;

/// Answers until the input ends.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"nng-files");
    guard::wait_for_all();
    helper::serve(NAME, || Ok(()), |question: Question, _| answer(question))
}

fn answer(question: Question) -> Answer {
    let done = match question {
        Question::Replace(path, text) => {
            guard::replace_in_place(&path, &text, Owner::OfFolder).map(|place| (String::new(), place))
        }
        Question::Read(path) => read_here(&path).map(|text| (text, path)),
        Question::Probe(path) => {
            let _ = std::fs::symlink_metadata(&path);
            let _ = std::fs::read_dir(&path).map(|mut entries| entries.next());
            Ok((String::new(), path))
        }
    };
    done.map_err(|error| (error.raw_os_error(), error.to_string()))
}

fn read_here(path: &Path) -> io::Result<String> {
    let text = guard::read_text(path, FILE_MAX, Owner::OfFolder)?;
    // Others would be six bytes each on the way back.
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(io::Error::new(ErrorKind::InvalidData, "the file is not UTF-8"));
    }
    Ok(text)
}

fn ask(question: &Question) -> io::Result<(String, PathBuf)> {
    let mut helper = HelperProcess::new(PathBuf::from(OWN_PROGRAM), NAME, ANSWER_MAX);
    match helper.ask::<Answer>(question, None) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err((Some(errno), _))) => Err(io::Error::from_raw_os_error(errno)),
        Ok(Err((None, why))) => Err(io::Error::other(why)),
        Err(Failure::Slow) => Err(io::Error::new(ErrorKind::TimedOut, "its file system does not respond")),
        Err(_) => Err(io::Error::other("the helper that reads the file could not start")),
    }
}

/// The text of a file that may be another user's.
///
/// # Errors
/// The errno of openat(2) or read(2); `TimedOut` if the file system does not answer; else the reason why the
/// file is not accepted.
pub fn read(path: &Path) -> io::Result<String> {
    ask(&Question::Read(path.to_owned())).map(|(text, _)| text)
}

/// Puts a file of `text` in the place of `path`, and makes the folders that it is in. A link of the caller stays one. Returns
/// the place.
///
/// # Errors
/// As those of [`read`].
pub fn replace(path: &Path, text: &str) -> io::Result<PathBuf> {
    ask(&Question::Replace(path.to_owned(), text.to_owned())).map(|(_, place)| place)
}

/// Asks whether the file system of `path` answers.
///
/// # Errors
/// `TimedOut` where it does not.
pub fn probe(path: &Path) -> io::Result<()> {
    match ask(&Question::Probe(path.to_owned())) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(error),
        _ => Ok(()),
    }
}
