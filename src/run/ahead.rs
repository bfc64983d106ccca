//! A thread that makes what another one takes, a little ahead of it, so that two CPUs work on one recording.

use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::{Context, Result};

/// Has `make` give values on a thread of its own, and `take` take them on this one, in the order in which they were given. At
/// most `room` values wait, and two more are being made and taken: memory does not grow with their number. `make` is told
/// false when no more is wanted, `take` says so.
///
/// # Errors
/// Errors of `take`, then those of `make`, or the errno of pthread_create(3).
pub(super) fn ahead<T: Send>(
    room: usize,
    make: impl FnOnce(&mut dyn FnMut(T) -> bool) -> Result<()> + Send,
    mut take: impl FnMut(T) -> Result<bool>,
) -> Result<()> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(room);
        let making = move || make(&mut |value| sender.send(value).is_ok());
        let maker = thread::Builder::new()
            .name("nng-reader".into())
            .spawn_scoped(scope, making)
            .context("starting a thread that reads ahead")?;
        // The receiver goes when this ends, and the maker with it.
        for value in receiver {
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
