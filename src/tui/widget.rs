//! Parts that views are made of.

pub mod bar;
pub mod pen;
pub mod table;
