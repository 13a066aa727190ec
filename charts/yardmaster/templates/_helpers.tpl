{{/* Name of the chart, as part of other names. */}}
{{- define "yardmaster.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* What the names of all objects begin with. Names of Services have at most 63 letters; the rest is for suffixes. */}}
{{- define "yardmaster.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- $name := include "yardmaster.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name of the Service: unlike others, it must begin with a letter. */}}
{{- define "yardmaster.serviceName" -}}
{{- $name := printf "%s-metrics" (include "yardmaster.fullname" .) }}
{{- if regexMatch "^[0-9]" $name }}
{{- $name = printf "yardmaster-%s" $name }}
{{- end }}
{{- $name }}
{{- end }}

{{/* Labels by which selectors find objects; they never change, since selectors of a Deployment cannot. */}}
{{- define "yardmaster.selectorLabels" -}}
app.kubernetes.io/name: {{ include "yardmaster.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* The same for the replicas alone: pods of hooks are no replicas. */}}
{{- define "yardmaster.replicaLabels" -}}
{{ include "yardmaster.selectorLabels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{/* Labels of all objects: (dict "root" $ "component" "controller" "more" .Values...labels). */}}
{{- define "yardmaster.labels" -}}
{{- $own := include "yardmaster.selectorLabels" .root | fromYaml }}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") }}
{{- $_ := set $own "app.kubernetes.io/version" (.root.Chart.AppVersion | replace "+" "_") }}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service }}
{{- $_ := set $own "app.kubernetes.io/part-of" "yardmaster" }}
{{- with .component }}
{{- $_ := set $own "app.kubernetes.io/component" . }}
{{- end }}
{{- toYaml (merge $own (deepCopy (.more | default dict)) .root.Values.commonLabels) }}
{{- end }}

{{/* Annotations of an object, on lines of their own, or nothing: (dict "root" $ "more" .Values...annotations). */}}
{{- define "yardmaster.annotations" -}}
{{- with merge (deepCopy (.more | default dict)) .root.Values.commonAnnotations }}
{{- dict "annotations" . | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{- define "yardmaster.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "yardmaster.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "yardmaster.leaseNamespace" -}}
{{- default .Release.Namespace .Values.controller.leaseNamespace }}
{{- end }}

{{- define "yardmaster.image" -}}
{{- $image := .Values.image }}
{{- $path := $image.repository }}
{{- if $image.registry }}
{{- $path = printf "%s/%s" $image.registry $image.repository }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $path $image.digest }}
{{- else }}
{{- printf "%s:%s" $path (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* "on", "off" or "auto". YAML reads a bare `on` or `off` as true or false, so these are the same. */}}
{{- define "yardmaster.ttlController" -}}
{{- $given := .Values.controller.ttlController }}
{{- if kindIs "bool" $given }}
{{- ternary "on" "off" $given }}
{{- else }}
{{- $given }}
{{- end }}
{{- end }}

{{/* Default options as the flag takes them, in the order of their names. */}}
{{- define "yardmaster.defaultOptions" -}}
{{- $options := list }}
{{- range $name, $value := .Values.controller.defaultOptions }}
{{- $options = append $options (printf "%s=%s" $name $value) }}
{{- end }}
{{- join ";" $options }}
{{- end }}

{{/* Feature gates as the flag takes them, in the order of their names. */}}
{{- define "yardmaster.featureGates" -}}
{{- $gates := list }}
{{- range $name, $on := .Values.controller.featureGates }}
{{- $gates = append $gates (printf "%s=%t" $name $on) }}
{{- end }}
{{- join "," $gates }}
{{- end }}

{{/* "true" with gang scheduling. */}}
{{- define "yardmaster.gangScheduling" -}}
{{- if index .Values.controller.featureGates "WorkloadWithJob" }}true{{ end }}
{{- end }}

{{/* A duration such as `1m 30s` in milliseconds. */}}
{{- define "yardmaster.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 }}
{{- $number := regexFind "[0-9]+" . | int64 }}
{{- $unit := regexFind "[a-z]+" . }}
{{- $sum = add $sum (mul $number (get $units $unit)) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* What the schema cannot say: values that depend on each other. */}}
{{- define "yardmaster.validate" -}}
{{- $controller := .Values.controller }}
{{- range list (list "renewDeadline" "leaseDuration") (list "retryPeriod" "renewDeadline") }}
{{- $less := index . 0 }}
{{- $more := index . 1 }}
{{- $small := get $controller $less }}
{{- $large := get $controller $more }}
{{- if ge (include "yardmaster.milliseconds" $small | int64) (include "yardmaster.milliseconds" $large | int64) }}
{{- fail (printf "controller.%s: %s must be less than controller.%s, which is %s" $less $small $more $large) }}
{{- end }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled }}
{{- fail "metrics.podMonitor.enabled: metrics.serviceMonitor.enabled is true as well, so every replica would be scraped twice; choose one" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled: needs metrics.service.enabled; without a Service use metrics.podMonitor.enabled" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- fail (printf "autoscaling.minReplicas: %d is more than autoscaling.maxReplicas, which is %d" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) }}
{{- end }}
{{- $flows := .Values.flowControl }}
{{- if and $flows.enabled (ge (int $flows.leases.matchingPrecedence) (int $flows.requests.matchingPrecedence)) }}
{{- fail (printf "flowControl.leases.matchingPrecedence: %d must be less than flowControl.requests.matchingPrecedence, which is %d: else requests about Leases count as any other" (int $flows.leases.matchingPrecedence) (int $flows.requests.matchingPrecedence)) }}
{{- end }}
{{- if and .Values.defaulting.enabled (eq $controller.name "kubernetes.io/job-controller") }}
{{- fail "defaulting.enabled: has no use in replacement mode (controller.name kubernetes.io/job-controller), where Jobs without spec.managedBy are run anyway" }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) .Values.rbac.create }}
{{- fail "serviceAccount.name: name the account that exists, or set serviceAccount.create: the rights would go to the account \"default\", which other pods use" }}
{{- end }}
{{- end }}

{{/*
API version of MutatingAdmissionPolicy. A cluster says what it serves. `helm template` knows no cluster, so it goes by the
Kubernetes version unless it is given --api-versions.
*/}}
{{- define "yardmaster.admissionVersion" -}}
{{- $group := "admissionregistration.k8s.io" }}
{{- if .Capabilities.APIVersions.Has (printf "%s/v1/MutatingAdmissionPolicy" $group) }}
{{- printf "%s/v1" $group }}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}
{{- printf "%s/v1" $group }}
{{- else if .Capabilities.APIVersions.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $group) }}
{{- printf "%s/v1beta1" $group }}
{{- else if semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version }}
{{- fail (printf "defaulting.enabled: Kubernetes %s does not serve MutatingAdmissionPolicy. Give kube-apiserver --feature-gates=MutatingAdmissionPolicy=true and --runtime-config=%s/v1beta1=true, or upgrade to 1.36, or set spec.managedBy in the Jobs. For `helm template`, which asks no cluster, add --api-versions %s/v1beta1/MutatingAdmissionPolicy" .Capabilities.KubeVersion.Version $group $group) }}
{{- else }}
{{- fail (printf "defaulting.enabled: Kubernetes %s has no MutatingAdmissionPolicy; it came with 1.34 and is on from 1.36. Set spec.managedBy in the Jobs, or use a policy engine for it" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}

{{/* Security context of pods; on OpenShift without the user that is the chart's own choice. */}}
{{- define "yardmaster.podSecurityContext" -}}
{{- $context := deepCopy .Values.podSecurityContext }}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" }}
{{- range list "runAsUser" "runAsGroup" }}
{{- if eq (get $context . | toString) "65532" }}
{{- $context = omit $context . }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{- define "yardmaster.affinity" -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- if and (ne .Values.podAntiAffinityPreset "none") (not (hasKey $affinity "podAntiAffinity")) }}
{{- $selector := dict "matchLabels" (include "yardmaster.replicaLabels" . | fromYaml) }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" $selector }}
{{- if eq .Values.podAntiAffinityPreset "hard" }}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) }}
{{- else }}
{{- $weighted := dict "weight" 100 "podAffinityTerm" $term }}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $weighted)) }}
{{- end }}
{{- end }}
{{- with $affinity }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "yardmaster.topologySpreadConstraints" -}}
{{- $constraints := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $constraint := deepCopy . }}
{{- if not (hasKey $constraint "labelSelector") }}
{{- $_ := set $constraint "labelSelector" (dict "matchLabels" (include "yardmaster.replicaLabels" $ | fromYaml)) }}
{{- end }}
{{- $constraints = append $constraints $constraint }}
{{- end }}
{{- with $constraints }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* Where the certificate of the HTTP pages is. */}}
{{- define "yardmaster.tlsDirectory" -}}
/var/run/secrets/yardmaster.dev/tls
{{- end }}

{{/* Whether the controller asks the API server who may read its pages. */}}
{{- define "yardmaster.reviewsAccess" -}}
{{- if or (eq .Values.controller.metricsAccess "authorized") (eq .Values.controller.debugAccess "authorized") }}true{{ end }}
{{- end }}

{{/* Arguments of the controller. */}}
{{- define "yardmaster.controllerArgs" -}}
{{- $c := .Values.controller -}}
- controller
- {{ printf "--controller-name=%s" $c.name | quote }}
- {{ printf "--lease-namespace=%s" (include "yardmaster.leaseNamespace" .) | quote }}
- {{ printf "--shards=%d" (int64 $c.shards) | quote }}
- {{ printf "--lease-duration=%s" $c.leaseDuration | quote }}
- {{ printf "--renew-deadline=%s" $c.renewDeadline | quote }}
- {{ printf "--retry-period=%s" $c.retryPeriod | quote }}
- {{ printf "--listen=%s:%d" $c.listenAddress (int64 $c.port) | quote }}
- {{ printf "--metrics-access=%s" $c.metricsAccess | quote }}
- {{ printf "--debug-access=%s" $c.debugAccess | quote }}
{{- if $c.pageActions }}
- "--page-actions"
{{- end }}
{{- if .Values.tls.secretName }}
- "--tls-cert-file={{ include "yardmaster.tlsDirectory" . }}/tls.crt"
- "--tls-private-key-file={{ include "yardmaster.tlsDirectory" . }}/tls.key"
{{- end }}
- {{ printf "--kube-api-qps=%d" (int64 $c.kubeApiQps) | quote }}
- {{ printf "--kube-api-burst=%d" (int64 $c.kubeApiBurst) | quote }}
- {{ printf "--batch-period=%s" $c.batchPeriod | quote }}
- {{ printf "--pod-failure-backoff=%s" $c.podFailureBackoff | quote }}
- {{ printf "--pod-failure-backoff-max=%s" $c.podFailureBackoffMax | quote }}
- {{ printf "--pod-failure-backoff-min=%s" $c.podFailureBackoffMin | quote }}
- {{ printf "--api-backoff=%s" $c.apiBackoff | quote }}
- {{ printf "--api-backoff-max=%s" $c.apiBackoffMax | quote }}
- {{ printf "--max-uncounted-pods=%d" (int64 $c.maxUncountedPods) | quote }}
- {{ printf "--max-pods-per-sync=%d" (int64 $c.maxPodsPerSync) | quote }}
{{- if $c.keepManagedFields }}
- "--keep-managed-fields"
{{- end }}
- {{ printf "--ttl-controller=%s" (include "yardmaster.ttlController" .) | quote }}
{{- with include "yardmaster.defaultOptions" . }}
- {{ printf "--default-options=%s" . | quote }}
{{- end }}
{{- with include "yardmaster.featureGates" . }}
- {{ printf "--feature-gates=%s" . | quote }}
{{- end }}
{{- with int64 .Values.tracing.memory }}
- {{ printf "--trace-memory=%d" . | quote }}
{{- end }}
- {{ printf "--log-format=%s" $c.logFormat | quote }}
- {{ printf "--log-level=%s" $c.logLevel | quote }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Which pod the program runs in: its name is that of the replica. */}}
{{- define "yardmaster.podEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/* Traces, by the standard variables of OpenTelemetry. */}}
{{- define "yardmaster.tracingEnv" -}}
{{- $otlp := .Values.tracing.otlp }}
{{- if $otlp.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ $otlp.endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ $otlp.protocol | quote }}
- name: OTEL_EXPORTER_OTLP_TIMEOUT
  value: {{ include "yardmaster.milliseconds" $otlp.timeout | quote }}
{{- with $otlp.headersSecret }}
{{- if .name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .name | quote }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- if or $otlp.ca.secretName $otlp.ca.configMapName }}
- name: OTEL_EXPORTER_OTLP_CERTIFICATE
  value: /etc/yardmaster/otlp-ca/ca.crt
{{- end }}
{{- if $otlp.clientCertificateSecret }}
- name: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE
  value: /etc/yardmaster/otlp-client/tls.crt
- name: OTEL_EXPORTER_OTLP_CLIENT_KEY
  value: /etc/yardmaster/otlp-client/tls.key
{{- end }}
{{- with $otlp.sampler }}
- name: OTEL_TRACES_SAMPLER
  value: {{ . | quote }}
{{- end }}
{{- with $otlp.samplerArgument }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}
{{- $resource := deepCopy $otlp.resourceAttributes }}
{{- $uid := $otlp.clusterUid }}
{{- if eq $uid "lookup" }}
{{- $uid = dig "metadata" "uid" "" (lookup "v1" "Namespace" "" "kube-system") }}
{{- end }}
{{- if $uid }}
{{- $_ := set $resource "k8s.cluster.uid" $uid }}
{{- end }}
{{- with $resource }}
{{- $attributes := list }}
{{- range $name, $value := . }}
{{- $attributes = append $attributes (printf "%s=%s" $name (toString $value | urlquery | replace "+" "%20")) }}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ join "," $attributes | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The files for TLS to the collector of traces. */}}
{{- define "yardmaster.tracingVolumes" -}}
{{- $otlp := .Values.tracing.otlp }}
{{- if $otlp.endpoint }}
{{- with $otlp.ca }}
{{- if or .secretName .configMapName }}
- name: otlp-ca
  {{- if .secretName }}
  secret:
    secretName: {{ .secretName | quote }}
  {{- else }}
  configMap:
    name: {{ .configMapName | quote }}
  {{- end }}
    items:
      - key: {{ .key | quote }}
        path: ca.crt
{{- end }}
{{- end }}
{{- with $otlp.clientCertificateSecret }}
- name: otlp-client
  secret:
    secretName: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where these files are. */}}
{{- define "yardmaster.tracingVolumeMounts" -}}
{{- range include "yardmaster.tracingVolumes" . | fromYamlArray }}
- name: {{ .name }}
  mountPath: /etc/yardmaster/{{ .name }}
  readOnly: true
{{- end }}
{{- end }}

{{/* The controller's settings for `yardmaster check`, which reads what it needs of them. */}}
{{- define "yardmaster.checkEnv" -}}
{{ include "yardmaster.podEnv" . }}
- name: YARDMASTER_CONTROLLER_NAME
  value: {{ .Values.controller.name | quote }}
- name: YARDMASTER_LEASE_NAMESPACE
  value: {{ include "yardmaster.leaseNamespace" . | quote }}
- name: YARDMASTER_SHARDS
  value: {{ .Values.controller.shards | int64 | quote }}
- name: YARDMASTER_TTL_CONTROLLER
  value: {{ include "yardmaster.ttlController" . | quote }}
- name: YARDMASTER_METRICS_ACCESS
  value: {{ .Values.controller.metricsAccess | quote }}
- name: YARDMASTER_DEBUG_ACCESS
  value: {{ .Values.controller.debugAccess | quote }}
{{- with include "yardmaster.featureGates" . }}
- name: YARDMASTER_FEATURE_GATES
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* A pod that runs `yardmaster check` once: (dict "root" $ "args" (list ...) "account" NAME "deadline" SECONDS). */}}
{{- define "yardmaster.checkPod" -}}
restartPolicy: Never
activeDeadlineSeconds: {{ int64 .deadline }}
serviceAccountName: {{ .account | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "yardmaster.podSecurityContext" .root | nindent 2 }}
containers:
  - name: check
    image: {{ include "yardmaster.image" .root | quote }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    env:
      {{- include "yardmaster.checkEnv" .root | nindent 6 }}
    {{- with .root.Values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    resources:
      requests:
        cpu: 10m
        memory: 32Mi
      limits:
        memory: 256Mi
    # What is wrong stands in the pod's status, too.
    terminationMessagePolicy: FallbackToLogsOnError
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Flags of the commands that NOTES.txt shows. */}}
{{- define "yardmaster.notesFlags" -}}
{{- printf " --lease-namespace %s" (include "yardmaster.leaseNamespace" .) }}
{{- end }}
