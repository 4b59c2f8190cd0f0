//! Send buffers that all connections of an interface share, small and large: a few at first, others on demand.

use crate::verbs::{Buffer, VerbsError, fewer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BufferSlot {
    class: u8,
    index: u32,
}

impl BufferSlot {
    #[inline]
    pub fn is_large(self) -> bool {
        self.class > 0
    }

    #[inline]
    pub fn place(self) -> (usize, usize) {
        (self.class as usize, self.index as usize)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ClassSettings {
    pub bytes: usize,
    /// Number of buffers allocated at the start. They can send messages even if no more memory can be locked later.
    pub few: u32,
    /// `group`: number of buffers of each later allocation. `groups`: maximum number of such allocations.
    pub group: u32,
    pub groups: u32,
    /// Number of free buffers that `take` withholds until an allocation of more buffers has succeeded or failed. After
    /// a refusal, sends from these buffers can request the completions that return the other buffers.
    pub kept: u32,
}

struct BufferClass {
    settings: ClassSettings,
    stride: usize,
    buffers: Vec<Buffer>,
    places: Vec<(*mut u8, u32)>,
    complete: bool,
    kept: usize,
    free: Vec<u32>,
    /// Bit mask: a buffer is marked if these bits of the free count are zero, so that about four buffers are marked.
    marks: usize,
}

impl BufferClass {
    fn new(settings: ClassSettings) -> Self {
        let most = settings.few + settings.group * settings.groups;
        BufferClass {
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

/// Send buffers of an interface. Short messages use small buffers, long messages large buffers. If all small buffers
/// are in use, a short message takes a large buffer.
pub(super) struct SendBuffers {
    classes: [BufferClass; 2],
}

impl SendBuffers {
    pub fn new(
        settings: [ClassSettings; 2], mut make: impl FnMut(usize) -> Result<Buffer, VerbsError>,
    ) -> Result<Self, VerbsError> {
        let mut classes = settings.map(BufferClass::new);
        for class in &mut classes {
            class.add(class.settings.few, &mut make)?;
            class.kept = if class.complete { 0 } else { class.settings.kept as usize };
        }
        Ok(SendBuffers { classes })
    }

    /// Allocates one more group for the first class that may still grow, small before large unless `large` is set. If
    /// memory is refused, allocates fewer buffers, and the class grows no more. Returns false if no class may grow.
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

    #[inline]
    pub fn available(&self, large: bool) -> u32 {
        let classes = self.classes[large as usize..].iter();
        classes.map(|class| class.free.len() as u32).sum()
    }

    #[inline]
    pub fn take(&mut self, large: bool) -> Option<BufferSlot> {
        let classes = self.classes.iter_mut().zip(0..).skip(large as usize);
        for (class, number) in classes {
            if class.free.len() > class.kept
                && let Some(index) = class.free.pop()
            {
                return Some(BufferSlot { class: number, index });
            }
        }
        None
    }

    #[inline]
    pub fn give(&mut self, slot: BufferSlot) {
        self.classes[slot.class as usize].free.push(slot.index);
    }

    #[inline]
    pub fn locate(&self, slot: BufferSlot) -> (*mut u8, u32) {
        self.classes[slot.class as usize].places[slot.index as usize]
    }

    pub fn made(&self) -> [usize; 2] {
        [0, 1].map(|class: usize| self.classes[class].places.len())
    }

    #[inline]
    pub fn is_mark(&self, slot: BufferSlot) -> bool {
        let class = &self.classes[slot.class as usize];
        slot.is_large() && class.free.len() & class.marks == 0
    }

    #[inline]
    pub fn is_low(&self) -> bool {
        // A class with only its first buffers is not low, because more are allocated soon, if possible.
        let low = |class: &BufferClass| {
            (class.complete || class.buffers.len() > 1)
                && class.free.len() * 4 <= class.places.len()
        };
        self.classes.iter().any(low)
    }
}
