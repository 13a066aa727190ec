//! Responses, from objects to bytes.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use super::media::{Accept, Form, Format};
use super::warnings;
use crate::error::ApiError;
use crate::object::Object;
use crate::protobuf;
use crate::resources::Resource;
use crate::store::Page;
use crate::table;
use crate::views;

/// The body of a response. Reading it never fails.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A response.
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) code: StatusCode,
    /// `Content-Type`; empty sends none.
    pub(crate) content_type: &'static str,
    /// The body.
    pub(crate) body: Body,
    /// Texts for `Warning` headers, which are cut or left out if they do not fit.
    pub(crate) warnings: Vec<String>,
}

impl Reply {
    /// A response with a complete body.
    pub(crate) fn full(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { code, content_type, body: Full::new(body.into()).boxed_unsync(), warnings: Vec::new() }
    }

    /// A response in JSON, or in YAML if the client accepts that.
    pub(crate) fn text(code: StatusCode, accept: Accept, json: Bytes) -> Self {
        match accept.format {
            Format::Json => Self::full(code, accept.content_type(), json),
            Format::Yaml => Self::full(code, accept.content_type(), to_yaml(&json)),
            // An error, or an object that protobuf cannot represent.
            Format::Protobuf => Self::full(code, Accept::JSON.content_type(), json),
        }
    }

    /// A JSON value, unchanged.
    pub(crate) fn value(code: StatusCode, accept: Accept, value: &Value) -> Self {
        Self::text(code, Accept { form: Form::Object, ..accept }, Bytes::from(value.to_string()))
    }

    /// An object, in the negotiated form.
    pub(crate) fn object(
        code: StatusCode,
        accept: Accept,
        resource: &Resource,
        object: &Object,
        rows: table::Rows,
    ) -> Result<Self, ApiError> {
        let json = match accept.form {
            Form::Object if accept.format == Format::Protobuf => {
                if let Ok(message) = views::in_protobuf(resource, object) {
                    return Ok(Self::full(code, accept.content_type(), message));
                }
                views::to_bytes(resource, object)
            }
            Form::Object | Form::Discovery(_) => views::to_bytes(resource, object),
            Form::Table(version) => {
                table::render(resource, version, rows, &[object], &table::ListMeta::of_one(object.revision))
            }
            Form::Partial if accept.format == Format::Protobuf => {
                if let Ok(message) = views::partial_in_protobuf(object) {
                    return Ok(Self::full(code, accept.content_type(), message));
                }
                views::partial(object)
            }
            Form::Partial => views::partial(object),
            Form::PartialList => {
                let what = go_type(resource);
                return Err(ApiError::not_acceptable_because(format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({what})"
                )));
            }
        };
        Ok(Self::text(code, accept, json))
    }

    /// A page of a list, in the negotiated form.
    pub(crate) fn list(
        accept: Accept,
        resource: &Resource,
        page: &Page,
        meta: &table::ListMeta,
        rows: table::Rows,
    ) -> Result<Self, ApiError> {
        if accept.format == Format::Protobuf
            && let Ok(message) = list_in_protobuf(resource, accept.form, page, meta)
        {
            return Ok(Self::full(StatusCode::OK, accept.content_type(), message));
        }
        let json = match accept.form {
            Form::Object | Form::Discovery(_) => list_json(
                &format!("{}List", resource.kind),
                &resource.api_version(),
                meta,
                page,
                |out, object| views::write_item(out, resource, object, object.revision),
            ),
            Form::PartialList => {
                list_json("PartialObjectMetadataList", "meta.k8s.io/v1", meta, page, |out, object| {
                    views::write_partial(out, object, object.revision);
                })
            }
            Form::Table(version) => {
                let items: Vec<&Object> = page.items.iter().map(AsRef::as_ref).collect();
                table::render(resource, version, rows, &items, meta)
            }
            Form::Partial => {
                return Err(ApiError::not_acceptable_because(format!(
                    "you requested PartialObjectMetadata, but the requested object is a list ({}List)",
                    go_type(resource)
                )));
            }
        };
        Ok(Self::text(StatusCode::OK, accept, json))
    }

    /// A `Status` of success about an object.
    pub(crate) fn success(accept: Accept, resource: &Resource, object: &Object) -> Self {
        let mut details = resource.details(&object.header.name);
        details["uid"] = object.header.uid.as_ref().into();
        Self::value(
            StatusCode::OK,
            accept,
            &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}),
        )
    }

    /// An error.
    pub(crate) fn error(accept: Accept, error: &ApiError) -> Response<Body> {
        let reply = Self::value(error.code, accept, &error.to_status());
        let mut response = reply.with_warnings(error.warnings.clone()).into_response();
        if let Some(seconds) = error.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Adds `Warning` headers.
    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// The HTTP response.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        if !self.content_type.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        for warning in warnings::headers(&self.warnings) {
            headers.append(header::WARNING, warning);
        }
        response
    }
}

fn list_json(
    kind: &str,
    version: &str,
    meta: &table::ListMeta,
    page: &Page,
    mut write: impl FnMut(&mut BytesMut, &Object),
) -> Bytes {
    let size: usize = page.items.iter().map(|object| object.tail.len() + 64).sum();
    let mut out = BytesMut::with_capacity(size + 512);
    let meta = meta.to_json();
    out.extend_from_slice(
        format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{meta},"items":["#).as_bytes(),
    );
    for (at, object) in page.items.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b",");
        }
        write(&mut out, object);
    }
    out.extend_from_slice(b"]}");
    out.freeze()
}

/// A list of objects, or of their metadata. Fails if an object has a field without a number in protobuf.
fn list_in_protobuf(
    resource: &Resource,
    form: Form,
    page: &Page,
    meta: &table::ListMeta,
) -> Result<Bytes, serde_json::Error> {
    let mut out = BytesMut::with_capacity(page.items.iter().map(|object| object.tail.len()).sum());
    let (meta, items) = (meta.to_json().to_string(), &page.items);
    let api_version = resource.api_version();
    let of_metadata = form == Form::PartialList;
    let of = match of_metadata {
        true => ("meta.k8s.io/v1", "PartialObjectMetadata"),
        false => (&*api_version, resource.kind),
    };
    protobuf::write_list(&mut out, of, meta.as_bytes(), items, |json, object| match of_metadata {
        true => views::write_partial_item(json, object, object.revision),
        false => views::write_item(json, resource, object, object.revision),
    })?;
    Ok(out.freeze())
}

/// The name of a type in messages of content negotiation.
fn go_type(resource: &Resource) -> String {
    let package = match resource.group {
        "" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("*{package}.{}", resource.kind)
}

fn to_yaml(json: &[u8]) -> Bytes {
    let value: Value = serde_json::from_slice(json).unwrap_or(Value::Null);
    serde_saphyr::to_string(&value).unwrap_or_default().into()
}
