//! Parts that views are made of.

pub mod columns;
pub mod cursor;
pub mod footer;
pub mod header;
pub mod layout;
pub mod list;
pub mod pen;
pub mod picker;
pub mod table;
pub mod timebar;
