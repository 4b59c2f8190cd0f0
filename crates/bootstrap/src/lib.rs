//! Who am I, who are the others: the job, its node segment, and how a process finds them.
