//! This program as a process: its pace, its signals, its messages, its service manager, files it replaces, its heap, its helper processes, and what it costs.

pub mod helper;
pub mod overhead;
pub mod pace;
pub mod reopened;
pub mod say;
pub mod signals;
pub mod slack;
pub mod systemd;
pub mod whole_file;
