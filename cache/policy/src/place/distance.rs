//! The distances between nodes, and the order in which they follow each other.
//!
//! Source: mechanisms 1.7; Linux 3.0 mm/page_alloc.c, find_next_best_node(), build_zonelists().

use core::fmt;

use super::NODES_MAX;

/// From a node to itself; every other distance is relative to it (ACPI SLIT).
pub const LOCAL: u8 = 10;
/// Between two nodes where nobody said anything.
pub const REMOTE: u8 = 20;

/// Distances between nodes, as firmware tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distances {
    count: usize,
    /// Row by row.
    of: Vec<u8>,
}

/// Why a table of distances is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistanceFault {
    /// Fewer than one node, or more than `NODES_MAX`.
    Nodes {
        /// Their number.
        count: usize,
    },
    /// A row has another length than there are nodes.
    Row {
        /// Which.
        node: usize,
        /// Its length.
        len: usize,
    },
    /// A node is not at `LOCAL` from itself.
    Own {
        /// Which.
        node: usize,
        /// The table's entry.
        distance: u8,
    },
    /// Another node is as near as the own one, or nearer.
    TooNear {
        /// From.
        from: usize,
        /// To.
        to: usize,
        /// The table's entry.
        distance: u8,
    },
    /// The way back has another length.
    NotSymmetric {
        /// From.
        from: usize,
        /// To.
        to: usize,
        /// There.
        there: u8,
        /// And back.
        back: u8,
    },
}

impl fmt::Display for DistanceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nodes { count } => {
                write!(
                    f,
                    "distances of {count} nodes; there may be 1 to {NODES_MAX}"
                )
            }
            Self::Row { node, len } => {
                write!(
                    f,
                    "node {node} has {len} distances, and not one to each node"
                )
            }
            Self::Own { node, distance } => {
                write!(
                    f,
                    "node {node} is {distance} from itself; that is always {LOCAL}"
                )
            }
            Self::TooNear { from, to, distance } => write!(
                f,
                "node {to} is {distance} from node {from}; another node is farther than {LOCAL}"
            ),
            Self::NotSymmetric {
                from,
                to,
                there,
                back,
            } => write!(
                f,
                "node {to} is {there} from node {from}, but {back} back; both have to be the same"
            ),
        }
    }
}

impl core::error::Error for DistanceFault {}

impl Distances {
    /// Distances from a table with one row a node.
    ///
    /// # Errors
    /// See `DistanceFault`.
    pub fn new(rows: &[Vec<u8>]) -> Result<Self, DistanceFault> {
        let count = rows.len();
        if !(1..=NODES_MAX).contains(&count) {
            return Err(DistanceFault::Nodes { count });
        }
        for (node, row) in rows.iter().enumerate() {
            if row.len() != count {
                return Err(DistanceFault::Row {
                    node,
                    len: row.len(),
                });
            }
        }
        for (from, row) in rows.iter().enumerate() {
            for (to, &distance) in row.iter().enumerate() {
                let back = rows[to][from];
                if from == to && distance != LOCAL {
                    return Err(DistanceFault::Own {
                        node: from,
                        distance,
                    });
                }
                if from != to && distance <= LOCAL {
                    return Err(DistanceFault::TooNear { from, to, distance });
                }
                if distance != back {
                    return Err(DistanceFault::NotSymmetric {
                        from,
                        to,
                        there: distance,
                        back,
                    });
                }
            }
        }
        Ok(Self {
            count,
            of: rows.concat(),
        })
    }

    /// All nodes equally far from each other.
    ///
    /// # Errors
    /// `DistanceFault::Nodes`.
    pub fn even(count: usize) -> Result<Self, DistanceFault> {
        let row = |from| {
            let to = |to| if from == to { LOCAL } else { REMOTE };
            (0..count).map(to).collect()
        };
        let rows: Vec<Vec<u8>> = (0..count).map(row).collect();
        Self::new(&rows)
    }

    /// Number of nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// From a node to another.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn between(&self, from: usize, to: usize) -> u8 {
        assert!(from < self.count && to < self.count, "no such node");
        self.of[from * self.count + to]
    }

    /// The nodes in the order in which each node's tasks fall back to them: `orders[n]` begins with
    /// `n`, then the nearest node first. Of equally near nodes one without CPUs comes first, then
    /// the node that fewer others have first at that distance, then the next by number.
    ///
    /// # Panics
    /// Unless `has_cpus` says it of each node.
    #[must_use]
    pub fn fallback_orders(&self, has_cpus: &[bool]) -> Vec<Vec<usize>> {
        assert_eq!(has_cpus.len(), self.count, "one answer for each node");
        // The burden of each node that is already the first one at its distance.
        let mut burden = vec![0; self.count];
        let order = |from: usize| self.fallback_order(from, has_cpus, &mut burden);
        (0..self.count).map(order).collect()
    }

    fn fallback_order(&self, from: usize, has_cpus: &[bool], burden: &mut [usize]) -> Vec<usize> {
        let mut order = vec![from];
        let mut last = LOCAL;
        while order.len() < self.count {
            let left = (0..self.count).filter(|node| !order.contains(node));
            let next = left.min_by_key(|&node| {
                let distance = usize::from(self.between(from, node));
                // One by one: a node below counts as a bit farther, and so does one with CPUs,
                // whose tasks want it.
                let near = distance + usize::from(node < from) + usize::from(has_cpus[node]);
                (near, burden[node], node)
            });
            let Some(next) = next else { break };
            let distance = self.between(from, next);
            if distance != last {
                burden[next] += self.count - order.len() + 1;
            }
            last = distance;
            order.push(next);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(rows: &[&[u8]]) -> Vec<Vec<u8>> {
        rows.iter().map(|row| row.to_vec()).collect()
    }

    #[test]
    fn two_nodes_fall_back_to_each_other() {
        let both = Distances::even(2).unwrap().fallback_orders(&[true, true]);
        assert_eq!(both, [vec![0, 1], vec![1, 0]]);
    }

    #[test]
    fn the_nearest_comes_first() {
        // Two sockets of two nodes.
        let distances = Distances::new(&square(&[
            &[10, 12, 20, 20],
            &[12, 10, 20, 20],
            &[20, 20, 10, 12],
            &[20, 20, 12, 10],
        ]))
        .unwrap();
        let orders = distances.fallback_orders(&[true; 4]);
        assert_eq!(orders[0], [0, 1, 2, 3]);
        assert_eq!(orders[3][..2], [3, 2]);
        for (from, order) in orders.iter().enumerate() {
            let far = |node: &usize| distances.between(from, *node);
            assert!(order.is_sorted_by_key(far), "{order:?}");
        }
    }

    #[test]
    fn equally_near_nodes_share_the_burden_of_being_first() {
        let orders = Distances::even(4).unwrap().fallback_orders(&[true; 4]);
        let firsts: Vec<usize> = orders.iter().map(|order| order[1]).collect();
        // The next by number as long as there is one; the last node's choice is the least burdened.
        assert_eq!(firsts, [1, 2, 3, 0]);
    }

    #[test]
    fn a_node_without_cpus_comes_before_one_that_has_some() {
        let orders = Distances::even(3)
            .unwrap()
            .fallback_orders(&[true, true, false]);
        assert_eq!(orders[0], [0, 2, 1]);
    }

    #[test]
    fn a_table_that_is_none_is_refused_with_the_place() {
        let refused = |rows: &[&[u8]]| Distances::new(&square(rows)).unwrap_err();
        assert_eq!(refused(&[]), DistanceFault::Nodes { count: 0 });
        assert_eq!(
            refused(&[&[10, 20], &[20]]),
            DistanceFault::Row { node: 1, len: 1 }
        );
        assert_eq!(
            refused(&[&[11]]),
            DistanceFault::Own {
                node: 0,
                distance: 11
            }
        );
        assert_eq!(
            refused(&[&[10, 9], &[9, 10]]),
            DistanceFault::TooNear {
                from: 0,
                to: 1,
                distance: 9
            }
        );
        let skew = refused(&[&[10, 20], &[30, 10]]);
        assert_eq!(
            skew,
            DistanceFault::NotSymmetric {
                from: 0,
                to: 1,
                there: 20,
                back: 30
            }
        );
        assert_eq!(
            skew.to_string(),
            "node 1 is 20 from node 0, but 30 back; both have to be the same"
        );
    }
}
