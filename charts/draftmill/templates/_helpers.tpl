{{- define "draftmill.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "draftmill.fullname" -}}
{{- $name := include "draftmill.name" . }}
{{- $default := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- .Values.fullnameOverride | default $default | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "draftmill.operator" -}}
{{ include "draftmill.fullname" . }}-operator
{{- end }}

{{/* Cluster-wide objects of two releases with one name must not meet. */}}
{{- define "draftmill.clusterName" -}}
{{ include "draftmill.fullname" . }}-{{ .Release.Namespace }}
{{- end }}

{{- define "draftmill.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "draftmill.operator" .) }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "draftmill.selectorLabels" -}}
app.kubernetes.io/name: {{ include "draftmill.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "draftmill.labels" -}}
{{ include "draftmill.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: draftmill
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Reference of an image: (dict "image" .Values.images.X "root" .) */}}
{{- define "draftmill.image" -}}
{{- with .root.Values.images.registry }}{{ trimSuffix "/" . }}/{{ end }}
{{- .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}
{{- else }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* What the operator may do with runs and their children. */}}
{{- define "draftmill.rules" -}}
- apiGroups: [draftmill.dev]
  resources: [synthruns, extractruns, draftertrains]
  # Runs with ttlAfterFinished are deleted in the end.
  verbs: [get, list, watch, delete]
- apiGroups: [draftmill.dev]
  resources: [synthruns/status, extractruns/status, draftertrains/status]
  verbs: [patch]
# Where the plugin OwnerReferencesPermissionEnforcement is on, children that block their run's deletion need this.
- apiGroups: [draftmill.dev]
  resources: [synthruns/finalizers, extractruns/finalizers, draftertrains/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  # Pods that a sick node refused are cleaned up.
  verbs: [get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create]
{{- end }}
