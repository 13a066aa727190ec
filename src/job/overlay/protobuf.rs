//! An overlay on a pod's spec in protobuf.
//!
//! Fields that are messages are rewritten, all others are copied as they are. A message that is written
//! twice is read as one, and a list as the elements of both. So the additions of an overlay follow the
//! given fields.

use super::{HostAvoidance, Overlay, Quantity, ResourceList, Variable, VariableValue, WEIGHT};
use crate::job::names::HOSTNAME_LABEL;
use crate::job::protobuf::{FieldError, Value, Writer, field, next_field};

/// Numbers of fields that only an overlay writes.
mod number {
    /// `Container.name`, and that of a variable.
    pub(super) const NAME: u32 = 1;
    /// `Affinity.nodeAffinity`.
    pub(super) const NODE_AFFINITY: u32 = 1;
    /// `NodeAffinity.requiredDuringSchedulingIgnoredDuringExecution`.
    pub(super) const REQUIRED: u32 = 1;
    /// `NodeAffinity.preferredDuringSchedulingIgnoredDuringExecution`.
    pub(super) const PREFERRED: u32 = 2;
    /// `NodeSelector.nodeSelectorTerms`.
    pub(super) const TERMS: u32 = 1;
    /// `NodeSelectorTerm.matchExpressions`.
    pub(super) const EXPRESSIONS: u32 = 1;
}

pub(super) fn added(overlay: &Overlay, spec: &[u8]) -> Result<Vec<u8>, FieldError> {
    let (mut copy, mut affinity) = (Writer::default(), Vec::new());
    for_each_field(spec, |number, value, whole| {
        match number {
            field::CONTAINERS | field::INIT_CONTAINERS if overlay.changes_containers() => {
                let container = with_container(overlay, value.bytes()?)?;
                copy.bytes(number, &container);
            }
            field::AFFINITY if overlay.avoidance.is_some() => affinity.extend_from_slice(value.bytes()?),
            _ => copy.append(whole),
        }
        Ok(())
    })?;
    if let Some(avoidance) = &overlay.avoidance {
        copy.bytes(field::AFFINITY, &with_avoidance(avoidance, &affinity)?);
    }
    Ok(copy.into_bytes())
}

/// Calls a function for each field: with its number, its value, and the whole field as it is encoded.
fn for_each_field<'a>(
    mut bytes: &'a [u8],
    mut take: impl FnMut(u32, Value<'a>, &'a [u8]) -> Result<(), FieldError>,
) -> Result<(), FieldError> {
    while !bytes.is_empty() {
        let before = bytes;
        let (number, value) = next_field(&mut bytes)?;
        take(number, value, &before[..before.len() - bytes.len()])?;
    }
    Ok(())
}

/// The fields of a message that have this number, in order.
fn all(message: &[u8], wanted: u32) -> Result<Vec<&[u8]>, FieldError> {
    let mut found = Vec::new();
    for_each_field(message, |number, value, _| {
        if number == wanted {
            found.push(value.bytes()?);
        }
        Ok(())
    })?;
    Ok(found)
}

/// A message without the fields of this number, and these as one message.
fn without(message: &[u8], unwanted: u32) -> Result<(Writer, Vec<u8>), FieldError> {
    let (mut rest, mut taken) = (Writer::default(), Vec::new());
    for_each_field(message, |number, value, whole| {
        if number == unwanted {
            taken.extend_from_slice(value.bytes()?);
        } else {
            rest.append(whole);
        }
        Ok(())
    })?;
    Ok((rest, taken))
}

fn with_container(overlay: &Overlay, container: &[u8]) -> Result<Vec<u8>, FieldError> {
    let name = all(container, number::NAME)?.last().copied().unwrap_or_default();
    let quantities: Vec<_> = overlay.quantities_of(name).collect();
    let (mut copy, resources) = match quantities.is_empty() {
        true => {
            let mut copy = Writer::default();
            copy.append(container);
            (copy, Vec::new())
        }
        false => without(container, field::RESOURCES)?,
    };
    let mut named = Vec::new();
    for variable in all(container, field::ENV)? {
        named.extend(all(variable, number::NAME)?);
    }
    for variable in overlay.env.iter().filter(|variable| !named.contains(&variable.name.as_bytes())) {
        copy.message(field::ENV, |message| write_variable(message, variable));
    }
    if !quantities.is_empty() {
        let resources = with_quantities(&quantities, &resources)?;
        copy.bytes(field::RESOURCES, &resources);
    }
    Ok(copy.into_bytes())
}

fn write_variable(message: &mut Writer, Variable { name, value }: &Variable) {
    message.bytes(number::NAME, name.as_bytes());
    match value {
        VariableValue::Text(text) => message.bytes(2, text.as_bytes()),
        VariableValue::Field(path) => message.message(3, |source| {
            source.message(1, |reference| reference.bytes(2, path.as_bytes()));
        }),
    }
}

/// Resources with these quantities in place of those for the same list and resource.
fn with_quantities(quantities: &[&Quantity], resources: &[u8]) -> Result<Vec<u8>, FieldError> {
    let list = |list| match list {
        ResourceList::Limits => 1,
        ResourceList::Requests => 2,
    };
    let mut copy = Writer::default();
    for_each_field(resources, |number, value, whole| {
        let is_replaced = match value {
            Value::Bytes(entry) => {
                let key = all(entry, 1)?.last().copied().unwrap_or_default();
                quantities.iter().any(|new| list(new.list) == number && new.resource.as_bytes() == key)
            }
            Value::Number(_) | Value::Other => false,
        };
        if !is_replaced {
            copy.append(whole);
        }
        Ok(())
    })?;
    for Quantity { list: of, resource, amount, .. } in quantities {
        copy.message(list(*of), |entry| {
            entry.bytes(1, resource.as_bytes());
            entry.message(2, |quantity| quantity.bytes(1, amount.as_bytes()));
        });
    }
    Ok(copy.into_bytes())
}

/// An affinity with the avoidance of hosts. Terms are alternatives, so each gets the expression. A term without any selects
/// no node, and stays as it is.
fn with_avoidance(avoidance: &HostAvoidance, affinity: &[u8]) -> Result<Vec<u8>, FieldError> {
    let (mut copy, nodes) = without(affinity, number::NODE_AFFINITY)?;
    let expression = |term: &mut Writer| {
        term.message(number::EXPRESSIONS, |expression| {
            expression.bytes(1, HOSTNAME_LABEL.as_bytes());
            expression.bytes(2, b"NotIn");
            avoidance.hosts.iter().for_each(|host| expression.bytes(3, host.as_bytes()));
        });
    };
    let nodes = if avoidance.required {
        let (mut nodes, selector) = without(&nodes, number::REQUIRED)?;
        let terms = all(&selector, number::TERMS)?;
        let with_expression = |term: &[u8]| {
            let mut copy = Writer::default();
            copy.append(term);
            if !term.is_empty() || terms.is_empty() {
                expression(&mut copy);
            }
            copy.into_bytes()
        };
        nodes.message(number::REQUIRED, |selector| {
            let given = terms.iter().copied().chain(terms.is_empty().then_some(&[][..]));
            given.for_each(|term| selector.bytes(number::TERMS, &with_expression(term)));
        });
        nodes
    } else {
        let mut copy = Writer::default();
        copy.append(&nodes);
        copy.message(number::PREFERRED, |preferred| {
            preferred.number(1, WEIGHT);
            preferred.message(2, expression);
        });
        copy
    };
    copy.bytes(number::NODE_AFFINITY, &nodes.into_bytes());
    Ok(copy.into_bytes())
}
