//! This program as a process: its pace, its signals, its messages, its service manager, files that others may have prepared, its heap, its helper processes, and what it costs.

pub mod asked_file;
pub mod guard;
pub mod helper;
pub mod interruptible;
pub mod launch;
pub mod overhead;
pub mod pace;
pub mod progress;
pub mod reopened;
pub mod say;
pub mod served;
pub mod signals;
pub mod slack;
pub mod sockets;
pub mod systemd;
