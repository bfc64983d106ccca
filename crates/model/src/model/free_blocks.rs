//! Free memory of a node by the size of its blocks.

use crate::model::coded::coded;

/// Free blocks of a node, all zones together, as /proc/buddyinfo counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Blocks by order: at place n those of 2^n pages.
    pub by_order: Vec<u64>,
    /// Size of a page, bytes.
    pub page_bytes: u64,
    /// Size of a transparent huge page, bytes; `None` where the kernel has none.
    pub huge_bytes: Option<u64>,
}

coded!(FreeBlocks { by_order, page_bytes, huge_bytes });

impl FreeBlocks {
    /// Bytes in all free blocks.
    pub fn bytes(&self) -> f64 {
        self.bytes_from(0.0)
    }

    /// Bytes in blocks of a huge page or more; `None` where the kernel has no huge pages.
    pub fn huge_bytes_free(&self) -> Option<f64> {
        self.huge_bytes.map(|least| self.bytes_from(least as f64))
    }

    /// Bytes in blocks of `least` bytes or more.
    fn bytes_from(&self, least: f64) -> f64 {
        let sizes = (0..).map(|order| self.page_bytes as f64 * f64::from(order).exp2());
        let blocks = self.by_order.iter().zip(sizes).filter(|(_, size)| *size >= least);
        blocks.fold(0.0, |sum, (blocks, size)| sum + *blocks as f64 * size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_blocks_of_a_size() {
        let mut free = FreeBlocks {
            by_order: vec![8, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1],
            page_bytes: 4096,
            huge_bytes: None,
        };
        assert_eq!(free.bytes(), 8.0 * 4096.0 + 10.0 * f64::from(1 << 20));
        assert_eq!(free.huge_bytes_free(), None);
        free.huge_bytes = Some(2 << 20);
        assert_eq!(free.huge_bytes_free(), Some(10.0 * f64::from(1 << 20)));
        free.huge_bytes = Some(512 << 20);
        assert_eq!(free.huge_bytes_free(), Some(0.0), "no block is as large as that");
        let hostile =
            FreeBlocks { by_order: vec![u64::MAX; 2048], page_bytes: u64::MAX, huge_bytes: Some(1) };
        assert!(hostile.bytes() > 0.0);
        assert!(FreeBlocks::default().bytes().is_sign_positive(), "0, not -0");
    }
}
