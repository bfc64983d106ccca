//! This program as a process: its pace, signals, messages, service manager, heap, helper processes and costs,
//! and files that others may have prepared.

pub mod asked_file;
pub mod guard;
pub mod helper;
pub mod interruptible;
pub mod launch;
pub mod output;
pub mod pace;
pub mod progress;
pub mod served;
pub mod signals;
pub mod slack;
pub mod sockets;
pub mod systemd;
