//! Media types: content negotiation and the type of request bodies.

use crate::error::ApiError;

/// The negotiated form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    /// Text format.
    pub(crate) format: Format,
    /// The representation of objects.
    pub(crate) form: Form,
}

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`, if the [`Offer`] includes it.
    Protobuf,
}

/// The representations on offer, in addition to plain objects in a text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Tables and partial objects.
    Forms,
    /// Tables, partial objects, and the objects themselves, the last two also in protobuf: for reads of an
    /// object and the events of a watch.
    ObjectsInProtobuf,
    /// Tables, partial objects, and the objects themselves, the last two also in protobuf: for lists.
    ListsInProtobuf,
    /// Tables and partial objects, the latter also in protobuf: for the responses to writes.
    PartialInProtobuf,
    /// Aggregated discovery.
    Discovery,
}

/// The representation of objects (`as=` of the Accept header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Object,
    /// Printed columns, in this version of `meta.k8s.io`.
    Table(&'static str),
    /// `PartialObjectMetadata`.
    Partial,
    /// `PartialObjectMetadataList`.
    PartialList,
    /// Aggregated discovery.
    Discovery(&'static str),
}

impl Accept {
    /// Plain JSON, the form of errors and statuses.
    pub(crate) const JSON: Self = Self { format: Format::Json, form: Form::Object };

    /// The Content-Type of a response in this form.
    pub(crate) fn content_type(self) -> &'static str {
        match (self.format, self.form) {
            (_, Form::Discovery("v2beta1")) => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
            (_, Form::Discovery(_)) => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            (Format::Json, _) => "application/json",
            (Format::Protobuf, _) => "application/vnd.kubernetes.protobuf",
            (Format::Yaml, _) => "application/yaml",
        }
    }
}

/// Chooses the form of the response: the first acceptable type in the header wins.
pub(crate) fn negotiate(header: Option<&str>, offer: Offer) -> Result<Accept, ApiError> {
    let discovery = offer == Offer::Discovery;
    let in_protobuf = match offer {
        Offer::ObjectsInProtobuf => &[Form::Object, Form::Partial][..],
        Offer::ListsInProtobuf => &[Form::Object, Form::PartialList],
        Offer::PartialInProtobuf => &[Form::Partial],
        Offer::Forms | Offer::Discovery => &[],
    };
    let Some(header) = header.filter(|header| !header.trim().is_empty()) else { return Ok(Accept::JSON) };
    let mut unknown_form = false;
    for clause in header.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let format = match parts.next().unwrap_or_default() {
            "application/json" | "*/*" => Format::Json,
            "application/yaml" => Format::Yaml,
            "application/vnd.kubernetes.protobuf" if !in_protobuf.is_empty() => Format::Protobuf,
            _ => continue,
        };
        let (mut form, mut group, mut version) = ("", "", "");
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim() {
                "as" => form = value.trim(),
                "g" => group = value.trim(),
                "v" => version = value.trim(),
                _ => {}
            }
        }
        let form = match (form, group, version) {
            ("", ..) => Form::Object,
            ("Table", "meta.k8s.io", "v1") if !discovery => Form::Table("v1"),
            ("Table", "meta.k8s.io", "v1beta1") if !discovery => Form::Table("v1beta1"),
            ("PartialObjectMetadata", "meta.k8s.io", "v1") if !discovery => Form::Partial,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1") if !discovery => Form::PartialList,
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if discovery => Form::Discovery("v2"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") if discovery => {
                Form::Discovery("v2beta1")
            }
            _ => {
                unknown_form = true;
                continue;
            }
        };
        if format == Format::Protobuf && !in_protobuf.contains(&form) {
            continue;
        }
        return Ok(Accept { format, form });
    }
    Err(if unknown_form { ApiError::form_not_acceptable() } else { ApiError::not_acceptable() })
}

/// The media type of a Content-Type header, without parameters.
pub(crate) fn essence(header: &str) -> &str {
    header.split(';').next().unwrap_or_default().trim()
}
