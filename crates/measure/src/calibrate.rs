//! `numatop-ng calibrate`: what nodes, caches and sibling threads of this machine cost each other.

pub mod child;
pub mod classes;
pub mod job;
pub mod machine;
pub mod merge;
pub mod plan;
pub mod results;
pub mod run;
pub mod show;
pub mod stats;
pub mod store;
pub mod worker;
