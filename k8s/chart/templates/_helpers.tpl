{{- define "aguihub.name" -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{- end }}
{{- define "aguihub.selector" -}}
app.kubernetes.io/name: aguihub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "aguihub.meta" -}}
name: {{ include "aguihub.name" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "aguihub.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- define "aguihub.hosts" -}}
{{ concat .Values.allowHosts .Values.ingress.hosts .Values.httpRoute.hostnames | uniq | join "," }}
{{- end }}
