//! The stacks of a profile as a tree of calls, from the outermost function down or from the hot one up.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::stacks::Function;

/// The end of the stacks that is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Below a function is what it calls.
    Callees,
    /// Below a function is who calls it.
    Callers,
}

/// A function in the context of the path that leads to it.
#[derive(Clone, Debug)]
pub struct Node {
    pub function: Arc<Function>,
    /// Samples whose stack has this path.
    pub samples: u64,
    /// Indexes into [`Tree::nodes`], most samples first.
    pub children: Vec<usize>,
}

/// Nodes by index, and which of them are roots, most samples first.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: Vec<Node>,
    pub roots: Vec<usize>,
}

impl Tree {
    /// The tree of `stacks`: innermost first, with the number of samples of each.
    pub fn build(stacks: impl Iterator<Item = (Vec<Arc<Function>>, u64)>, direction: Direction) -> Tree {
        let mut tree = Tree::default();
        let mut index: HashMap<(Option<usize>, Arc<Function>), usize> = HashMap::new();
        for (mut stack, count) in stacks {
            if direction == Direction::Callees {
                stack.reverse();
            }
            let mut parent = None;
            for function in stack {
                let at = *index.entry((parent, Arc::clone(&function))).or_insert_with(|| {
                    tree.nodes.push(Node { function, samples: 0, children: Vec::new() });
                    let at = tree.nodes.len() - 1;
                    match parent {
                        Some(parent) => tree.nodes[parent].children.push(at),
                        None => tree.roots.push(at),
                    }
                    at
                });
                tree.nodes[at].samples += count;
                parent = Some(at);
            }
        }
        let key =
            |nodes: &[Node], at: &usize| (std::cmp::Reverse(nodes[*at].samples), nodes[*at].function.clone());
        let mut roots = std::mem::take(&mut tree.roots);
        roots.sort_by_cached_key(|at| key(&tree.nodes, at));
        tree.roots = roots;
        for at in 0..tree.nodes.len() {
            let mut children = std::mem::take(&mut tree.nodes[at].children);
            children.sort_by_cached_key(|child| key(&tree.nodes, child));
            tree.nodes[at].children = children;
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &[&str], count: u64) -> (Vec<Arc<Function>>, u64) {
        let function = |name: &&str| {
            Arc::new(Function { name: Some(name.to_string()), module: "m".into(), kernel: false })
        };
        (names.iter().map(function).collect(), count)
    }

    fn text(tree: &Tree, at: usize) -> String {
        let node = &tree.nodes[at];
        let below: Vec<String> = node.children.iter().map(|child| text(tree, *child)).collect();
        format!("{}:{}[{}]", node.function, node.samples, below.join(" "))
    }

    #[test]
    fn callees_hang_below_main_and_callers_below_the_hot_one() {
        let stacks =
            || [stack(&["hot", "a", "main"], 6), stack(&["hot", "b", "main"], 3), stack(&["b", "main"], 1)];
        let tree = Tree::build(stacks().into_iter(), Direction::Callees);
        assert_eq!(text(&tree, tree.roots[0]), "main:10[a:6[hot:6[]] b:4[hot:3[]]]");
        let tree = Tree::build(stacks().into_iter(), Direction::Callers);
        let roots: Vec<String> = tree.roots.iter().map(|root| text(&tree, *root)).collect();
        assert_eq!(roots, ["hot:9[a:6[main:6[]] b:3[main:3[]]]", "b:1[main:1[]]"]);
    }
}
