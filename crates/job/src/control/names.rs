//! Table of published services. The launcher has a table for its job; a process without a launcher has its own table.

use super::message::Cause;
use std::collections::BTreeMap;

/// Largest number of services, which bounds the launcher's memory.
const SERVICES_MOST: usize = 1 << 16;

/// Published services, by name.
#[derive(Debug, Default)]
pub struct ServiceNames(BTreeMap<Vec<u8>, Service>);

#[derive(Debug)]
struct Service {
    port: Vec<u8>,
    owner: u32,
}

/// A refusal, with its cause and its text.
pub type Refusal = (Cause, String);

fn show(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

impl ServiceNames {
    /// Makes an empty table.
    pub const fn new() -> ServiceNames {
        ServiceNames(BTreeMap::new())
    }

    /// Publishes a service of rank `owner`.
    ///
    /// # Errors
    /// The name is taken.
    pub fn publish(&mut self, service: &[u8], port: &[u8], owner: u32) -> Result<(), Refusal> {
        let refuse = |text: String| Err((Cause::Service, text));
        if let Some(there) = self.0.get(service) {
            let (name, owner) = (show(service), there.owner);
            return refuse(format!("rank {owner} of the job has published {name} already"));
        }
        if self.0.len() >= SERVICES_MOST {
            return refuse(format!(
                "{SERVICES_MOST} services are published already, which is the limit of a job"
            ));
        }
        let port = port.to_vec();
        self.0.insert(service.to_vec(), Service { port, owner });
        Ok(())
    }

    /// Returns the port of a service.
    ///
    /// # Errors
    /// No service has that name.
    pub fn look_up(&self, service: &[u8]) -> Result<&[u8], Refusal> {
        let found = self.0.get(service).map(|service| &service.port[..]);
        found.ok_or_else(|| {
            let text = format!("{} is not published", show(service));
            (Cause::Name, text)
        })
    }

    /// Unpublishes a service.
    ///
    /// # Errors
    /// No service has that name, or the service has another port.
    pub fn unpublish(&mut self, service: &[u8], port: &[u8]) -> Result<(), Refusal> {
        let name = show(service);
        match self.0.get(service) {
            None => Err((Cause::Service, format!("{name} is not published"))),
            Some(there) if there.port != port => {
                let text = format!("{name} is published with another port");
                Err((Cause::Service, text))
            }
            Some(_) => {
                self.0.remove(service);
                Ok(())
            }
        }
    }

    /// Removes the services of a rank that has ended.
    pub fn forget(&mut self, owner: u32) {
        self.0.retain(|_, service| service.owner != owner);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn services__are_found_until_they_are_taken_back() {
        let mut names = ServiceNames::new();
        let class = |refused: Refusal| refused.0;
        assert_eq!(names.look_up(b"a").map_err(class), Err(Cause::Name));
        names.publish(b"a", b"port 1", 3).unwrap();
        assert_eq!(names.look_up(b"a"), Ok(&b"port 1"[..]));
        let again = names.publish(b"a", b"port 2", 4).unwrap_err();
        assert!(again.0 == Cause::Service && again.1.contains("rank 3"));
        let other = names.unpublish(b"a", b"port 2").map_err(class);
        assert_eq!(other, Err(Cause::Service));
        names.unpublish(b"a", b"port 1").unwrap();
        let twice = names.unpublish(b"a", b"port 1").map_err(class);
        assert_eq!(twice, Err(Cause::Service));
    }

    #[test]
    fn services__of_a_rank_that_has_ended_are_gone() {
        let mut names = ServiceNames::new();
        names.publish(b"a", b"1", 3).unwrap();
        names.publish(b"b", b"2", 4).unwrap();
        names.forget(3);
        assert!(names.look_up(b"a").is_err() && names.look_up(b"b").is_ok());
    }
}
