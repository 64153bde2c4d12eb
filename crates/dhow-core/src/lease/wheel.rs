//! A hierarchical timer wheel: arming, moving and taking out a timer cost the same however many there are.
//!
//! Time is read as eleven digits of six bits. A timer lies at the highest digit in which its moment differs
//! from the present, in the slot of that digit: so everything on a lower level is due before anything on a
//! higher one, and a slot is opened when the present reaches its first millisecond; what is not due then
//! falls to a lower level. A timer falls at most ten times. Timers are small numbers that the caller gives
//! out, linked in lists inside one vector, so that a timer is in the wheel once and leaves no trace behind.

const DIGIT_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// 11 × 6 bits are enough for the 64 of a moment.
const LEVELS: usize = 11;
/// The list of those whose moment had already come when they were armed.
const OVERDUE: usize = LEVELS * SLOTS_PER_LEVEL;
const LISTS: usize = OVERDUE + 1;
/// Marks the end of a list, and a timer that is in none.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    due_ms: u64,
    before: u32,
    after: u32,
    list: u32,
}

const UNLINKED: Link = Link {
    due_ms: 0,
    before: NONE,
    after: NONE,
    list: NONE,
};

/// The timers of a lease table, by their moments.
#[derive(Clone, Debug)]
pub(super) struct Wheel {
    now_ms: u64,
    /// One bit per slot that holds a timer.
    occupied: [u64; LEVELS],
    heads: [u32; LISTS],
    links: Vec<Link>,
}

impl Wheel {
    pub fn new() -> Self {
        Self {
            now_ms: 0,
            occupied: [0; LEVELS],
            heads: [NONE; LISTS],
            links: Vec::new(),
        }
    }

    /// Sets the timer to fire at `due_ms`, wherever it was before.
    pub fn arm(&mut self, timer: u32, due_ms: u64) {
        self.disarm(timer);
        let index = timer as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, UNLINKED);
        }
        self.links[index].due_ms = due_ms;
        self.link(timer);
    }

    /// Takes the timer out; nothing where it is in no list.
    pub fn disarm(&mut self, timer: u32) {
        let Some(&link) = self.links.get(timer as usize) else {
            return;
        };
        if link.list == NONE {
            return;
        }
        let list = link.list as usize;
        match link.before {
            NONE => self.heads[list] = link.after,
            before => self.links[before as usize].after = link.after,
        }
        if link.after != NONE {
            self.links[link.after as usize].before = link.before;
        }
        if self.heads[list] == NONE && list != OVERDUE {
            self.occupied[list / SLOTS_PER_LEVEL] &= !(1 << (list % SLOTS_PER_LEVEL));
        }
        self.links[timer as usize] = UNLINKED;
    }

    /// Moves the present to `now_ms` and takes out every timer that is due by then. A moment before the
    /// present moves nothing.
    pub fn advance(&mut self, now_ms: u64, mut fired: impl FnMut(u32)) {
        while let Some((list, opens_ms)) = self.first_list() {
            if opens_ms > now_ms.max(self.now_ms) {
                break;
            }
            self.now_ms = opens_ms;
            // The list is emptied before anything is linked again, so that this ends.
            let mut timer = self.take(list);
            while timer != NONE {
                let link = self.links[timer as usize];
                self.links[timer as usize].list = NONE;
                if link.due_ms <= self.now_ms {
                    self.links[timer as usize] = UNLINKED;
                    fired(timer);
                } else {
                    self.link(timer);
                }
                timer = link.after;
            }
        }
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// When to advance next at the latest: the moment of the first timer, or an earlier one at which the
    /// wheel has to look again.
    pub fn next_ms(&self) -> Option<u64> {
        self.first_list().map(|(_, opens_ms)| opens_ms)
    }

    /// The list that opens first, and when.
    fn first_list(&self) -> Option<(usize, u64)> {
        if self.heads[OVERDUE] != NONE {
            return Some((OVERDUE, self.now_ms));
        }
        let level = self.occupied.iter().position(|slots| *slots != 0)?;
        let slot = self.occupied[level].trailing_zeros();
        let shift = level as u32 * DIGIT_BITS;
        // The digits above this one are those of the present; on the highest level there are none.
        let above = self.now_ms.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
        let above = above.checked_shl(shift + DIGIT_BITS).unwrap_or(0);
        let opens_ms = above | (u64::from(slot) << shift);
        Some((level * SLOTS_PER_LEVEL + slot as usize, opens_ms))
    }

    /// Empties a list and gives its first timer.
    fn take(&mut self, list: usize) -> u32 {
        if list != OVERDUE {
            self.occupied[list / SLOTS_PER_LEVEL] &= !(1 << (list % SLOTS_PER_LEVEL));
        }
        std::mem::replace(&mut self.heads[list], NONE)
    }

    /// Puts a timer, whose moment is set, into the list where it belongs at present.
    fn link(&mut self, timer: u32) {
        let due_ms = self.links[timer as usize].due_ms;
        let list = if due_ms <= self.now_ms {
            OVERDUE
        } else {
            // They differ, so that the highest differing bit is below 64.
            let level = ((due_ms ^ self.now_ms).ilog2() / DIGIT_BITS) as usize;
            let slot = (due_ms >> (level as u32 * DIGIT_BITS)) as usize % SLOTS_PER_LEVEL;
            self.occupied[level] |= 1 << slot;
            level * SLOTS_PER_LEVEL + slot
        };
        let head = std::mem::replace(&mut self.heads[list], timer);
        if head != NONE {
            self.links[head as usize].before = timer;
        }
        self.links[timer as usize] = Link {
            due_ms,
            before: NONE,
            after: head,
            // At most 705 lists.
            list: list as u32,
        };
    }
}

#[cfg(test)]
mod tests;
