//! Send buffers that all connections of an interface share: small and large ones, a few of each from the start, the
//! others at need.

use crate::verbs::{Buffer, VerbsError, fewer};

/// A send buffer: its class and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    class: u8,
    index: u32,
}

impl Slot {
    /// Whether it is a large one.
    #[inline]
    pub fn is_large(self) -> bool {
        self.class > 0
    }

    /// Its class and its number there.
    #[inline]
    pub fn place(self) -> (usize, usize) {
        (self.class as usize, self.index as usize)
    }
}

/// What the buffers of one size are made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassSettings {
    /// Bytes of one.
    pub bytes: usize,
    /// How many are there from the start, so that messages leave however little may be locked later.
    pub few: u32,
    /// How many are made at once later, and how often.
    pub group: u32,
    pub groups: u32,
    /// Free ones that are not given away until it was tried to make more. So it is known by the last send whether there
    /// will be more, or its success must be reported.
    pub kept: u32,
}

struct Class {
    settings: ClassSettings,
    stride: usize,
    /// Those of the start, and each group.
    buffers: Vec<Buffer>,
    /// Where each lies in those, and the key of its memory.
    places: Vec<(*mut u8, u32)>,
    /// Whether no more are made: all are there, or the memory for more was refused.
    complete: bool,
    kept: usize,
    free: Vec<u32>,
    /// Bits of the number of free ones that are zero where one is marked: about four of all are.
    marks: usize,
}

impl Class {
    fn new(settings: ClassSettings) -> Self {
        let most = settings.few + settings.group * settings.groups;
        Class {
            settings,
            stride: settings.bytes.next_multiple_of(64),
            buffers: Vec::new(),
            places: Vec::new(),
            complete: settings.group == 0 || settings.groups == 0,
            kept: 0,
            free: Vec::new(),
            marks: (most / 4).max(1).next_power_of_two() as usize - 1,
        }
    }

    fn add(
        &mut self, count: u32, make: &mut impl FnMut(usize) -> Result<Buffer, VerbsError>,
    ) -> Result<(), VerbsError> {
        let buffer = make(self.stride * count as usize)?;
        let first = self.places.len() as u32;
        self.places.extend(buffer.places(self.stride, count));
        self.free.extend((first..first + count).rev());
        self.buffers.push(buffer);
        Ok(())
    }
}

/// The send buffers of an interface. A message takes a large one where the small ones are in use, so that it finds room
/// where a longer one does.
pub(super) struct SendBuffers {
    classes: [Class; 2],
}

impl SendBuffers {
    /// Small and large ones. Each of the start is made by `make`, which is given bytes.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn new(
        settings: [ClassSettings; 2], mut make: impl FnMut(usize) -> Result<Buffer, VerbsError>,
    ) -> Result<Self, VerbsError> {
        let mut classes = settings.map(Class::new);
        for class in &mut classes {
            class.add(class.settings.few, &mut make)?;
            class.kept = if class.complete { 0 } else { class.settings.kept as usize };
        }
        Ok(SendBuffers { classes })
    }

    /// Makes another group of the first class, small ones or else large ones, that may have more, or as many as there
    /// is memory for; false where all are there. A class for which memory was refused is not asked for again.
    ///
    /// # Errors
    /// No memory, or the limit on locked memory is too low.
    pub fn grow(
        &mut self, large: bool, mut make: impl FnMut(usize) -> Result<Buffer, VerbsError>,
    ) -> Result<bool, VerbsError> {
        let mut classes = self.classes[large as usize..].iter_mut();
        let Some(class) = classes.find(|class| !class.complete) else {
            return Ok(false);
        };
        let (before, settings) = (class.places.len(), class.settings);
        let made = fewer(settings.group, |count| class.add(count, &mut make));
        let all = class.buffers.len() > settings.groups as usize;
        class.complete = all || class.places.len() - before < settings.group as usize;
        class.kept = 0;
        made
    }

    /// Free buffers for such messages, of those that are made.
    #[inline]
    pub fn available(&self, large: bool) -> u32 {
        let classes = self.classes[large as usize..].iter();
        classes.map(|class| class.free.len() as u32).sum()
    }

    /// A free buffer.
    #[inline]
    pub fn take(&mut self, large: bool) -> Option<Slot> {
        let classes = self.classes.iter_mut().zip(0..).skip(large as usize);
        for (class, number) in classes {
            if class.free.len() > class.kept
                && let Some(index) = class.free.pop()
            {
                return Some(Slot { class: number, index });
            }
        }
        None
    }

    /// Gives one back.
    #[inline]
    pub fn give(&mut self, slot: Slot) {
        self.classes[slot.class as usize].free.push(slot.index);
    }

    /// First byte of a buffer, and the key of its memory.
    #[inline]
    pub fn locate(&self, slot: Slot) -> (*mut u8, u32) {
        self.classes[slot.class as usize].places[slot.index as usize]
    }

    /// How many of each class are made.
    pub fn made(&self) -> [usize; 2] {
        [0, 1].map(|class: usize| self.classes[class].places.len())
    }

    /// Whether it is worth knowing when this large buffer, just taken, is free again: one of a few is.
    #[inline]
    pub fn is_mark(&self, slot: Slot) -> bool {
        let class = &self.classes[slot.class as usize];
        slot.is_large() && class.free.len() & class.marks == 0
    }

    /// Whether few buffers are left: that sends are done must be heard of soon, so that theirs come back.
    #[inline]
    pub fn is_low(&self) -> bool {
        // The first few are soon joined by others, where those can be had.
        let low = |class: &Class| {
            (class.complete || class.buffers.len() > 1)
                && class.free.len() * 4 <= class.places.len()
        };
        self.classes.iter().any(low)
    }
}
