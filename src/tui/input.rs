//! Keys, and the actions that they ask for.

pub mod action;
pub mod keymap;
pub mod unbound;
