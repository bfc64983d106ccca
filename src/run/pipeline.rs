//! A thread that produces values for another one, a little ahead, so that two CPUs work on one recording.

use std::mem::replace;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context, Result};

/// Calls `make` for values on a separate thread, and `take` for them on this one, in the same order. They are
/// handed over `batch` at a time, because waking the other thread for each takes as long as making a small
/// one. At most three batches exist, one being made and one being taken, so memory does not grow with the
/// number of values. `make` gets false to stop, when `take` asks for it.
///
/// # Errors
/// Errors of `take`, then those of `make`, or the errno of pthread_create(3).
pub(super) fn ahead<T: Send>(
    batch: usize,
    make: impl FnOnce(&mut dyn FnMut(T) -> bool) -> Result<()> + Send,
    mut take: impl FnMut(T) -> Result<bool>,
) -> Result<()> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(1);
        let making = move || {
            let mut made = Vec::with_capacity(batch);
            let result = make(&mut |value| {
                made.push(value);
                made.len() < batch || sender.send(replace(&mut made, Vec::with_capacity(batch))).is_ok()
            });
            // Values before an error count, too. The receiver may be gone: then the work ends.
            let _ = sender.send(made);
            result
        };
        let maker = thread::Builder::new()
            .name("nng-reader".into())
            .spawn_scoped(scope, making)
            .context("starting a thread that reads ahead")?;
        // The receiver goes when this ends, and the maker with it.
        for value in receiver.into_iter().flatten() {
            if !take(value)? {
                return Ok(());
            }
        }
        maker.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn numbers(upto: u32) -> impl FnOnce(&mut dyn FnMut(u32) -> bool) -> Result<()> + Send {
        move |give| {
            let _ = (0..upto).all(give);
            Ok(())
        }
    }

    #[test]
    fn values_come_in_their_order() {
        let mut taken = Vec::new();
        ahead(2, numbers(1000), |value| {
            taken.push(value);
            Ok(true)
        })
        .unwrap();
        assert_eq!(taken, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_maker_without_end_ends_when_no_more_is_wanted() {
        let mut last = 0;
        let enough = |value: u32| {
            last = value;
            Ok(value < 10)
        };
        ahead(1, numbers(u32::MAX), enough).unwrap();
        assert_eq!(last, 10);
    }

    #[test]
    fn errors_of_both_sides_are_told() {
        let taken = ahead(1, numbers(u32::MAX), |_| bail!("full"));
        assert_eq!(taken.unwrap_err().to_string(), "full");
        let mut count = 0;
        let made = ahead(
            1,
            |give| {
                give(1);
                bail!("torn")
            },
            |_: u32| {
                count += 1;
                Ok(true)
            },
        );
        assert_eq!((made.unwrap_err().to_string(), count), ("torn".into(), 1));
    }
}
