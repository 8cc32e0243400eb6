//! Pages in order, on one of several lists: the one structure that most rules are made of.

/// No page.
const NONE: u32 = u32::MAX;

/// Doubly linked lists of pages. A page is on one of them or on none.
pub(crate) struct Lists {
    /// By page: the one before it (nearer to the new end), and the one behind.
    links: Vec<[u32; 2]>,
    /// By page: its list, and one more than the last where it is on none.
    on: Vec<u8>,
    ends: Vec<[u32; 2]>,
    lens: Vec<u32>,
}

impl Lists {
    /// Empty lists for pages below `pages`.
    pub(crate) fn new(pages: u32, lists: u8) -> Self {
        Self {
            links: vec![[NONE; 2]; pages as usize],
            on: vec![lists; pages as usize],
            ends: vec![[NONE; 2]; usize::from(lists)],
            lens: vec![0; usize::from(lists)],
        }
    }

    /// The list that a page is on; the number of lists: none.
    pub(crate) fn on(&self, page: u32) -> u8 {
        self.on[page as usize]
    }

    /// Pages on a list.
    pub(crate) fn len(&self, list: u8) -> u32 {
        self.lens[usize::from(list)]
    }

    /// To the new end; the page is on no list.
    pub(crate) fn push(&mut self, list: u8, page: u32) {
        let [head, tail] = &mut self.ends[usize::from(list)];
        self.links[page as usize] = [NONE, *head];
        if *head == NONE {
            *tail = page;
        } else {
            self.links[*head as usize][0] = page;
        }
        *head = page;
        self.on[page as usize] = list;
        self.lens[usize::from(list)] += 1;
    }

    /// Off its list.
    pub(crate) fn remove(&mut self, page: u32) {
        let list = usize::from(self.on[page as usize]);
        let [before, behind] = self.links[page as usize];
        if before == NONE {
            self.ends[list][0] = behind;
        } else {
            self.links[before as usize][1] = behind;
        }
        if behind == NONE {
            self.ends[list][1] = before;
        } else {
            self.links[behind as usize][0] = before;
        }
        self.on[page as usize] = u8::try_from(self.ends.len()).expect("lists are few");
        self.lens[list] -= 1;
    }

    /// To the new end of a list, from whichever it is on.
    pub(crate) fn renew(&mut self, list: u8, page: u32) {
        if self.ends[usize::from(list)][0] != page {
            self.remove(page);
            self.push(list, page);
        }
    }

    /// The page at the old end.
    pub(crate) fn oldest(&self, list: u8) -> Option<u32> {
        let page = self.ends[usize::from(list)][1];
        (page != NONE).then_some(page)
    }

    /// The page at the new end.
    pub(crate) fn newest(&self, list: u8) -> Option<u32> {
        let page = self.ends[usize::from(list)][0];
        (page != NONE).then_some(page)
    }

    /// Takes the page at the old end.
    pub(crate) fn pop(&mut self, list: u8) -> Option<u32> {
        let page = self.oldest(list)?;
        self.remove(page);
        Some(page)
    }
}
