{{/* Name of all objects: the release's, with the chart's unless the release has it in its name. */}}
{{- define "dataapi.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods. */}}
{{- define "dataapi.selector" -}}
app.kubernetes.io/name: dataapi
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "dataapi.labels" -}}
{{ include "dataapi.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Name of the Secret. */}}
{{- define "dataapi.secret" -}}
{{- .Values.secret.existing | default (include "dataapi.name" .) -}}
{{- end -}}

{{/* Name of the environment variable of a configuration key, from a list of its section and its name. */}}
{{- define "dataapi.variable" -}}
{{- join "_" . | upper | replace "-" "_" | printf "DATAAPI_%s" -}}
{{- end -}}

{{/* A configuration value as text. Helm reads each number as a floating-point number. */}}
{{- define "dataapi.value" -}}
{{- if kindIs "bool" . -}}
{{- ternary "yes" "no" . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}
