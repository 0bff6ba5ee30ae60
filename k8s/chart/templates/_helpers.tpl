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
{{- /* What the hub is told, by the names of flags in the environment. What env says wins. */ -}}
{{- define "aguihub.env" -}}
{{- $v := .Values }}
{{- $all := dict
  "AGUIHUB_LISTEN" "0.0.0.0:8080"
  "AGUIHUB_METRICS_LISTEN" "0.0.0.0:9464"
  "AGUIHUB_LOG_FORMAT" "json"
  "AGUIHUB_REDIS" $v.redis.url
  "AGUIHUB_REDIS_CREDENTIALS_FILE" (ternary "/secrets/redis/credentials" "" (ne $v.redis.credentialsSecret ""))
  "AGUIHUB_REDIS_CA" (ternary "/secrets/redis-ca/ca.crt" "" (ne $v.redis.caSecret ""))
  "AGUIHUB_TAIL" $v.tail
  "AGUIHUB_MEMORY" $v.memory
  "AGUIHUB_DRAIN_TIME" (printf "%ds" (int $v.drain.seconds))
  "AGUIHUB_MAX_CONNECTION_AGE" $v.maxConnectionAge
  "AGUIHUB_ALLOW_HOST" (include "aguihub.hosts" . | trim)
  "AGUIHUB_ALLOW_ORIGIN" (join "," $v.allowOrigins)
  "AGUIHUB_TRUST_PROXY" (join "," $v.trustProxies)
  "AGUIHUB_AUTH_CONFIG" (ternary "/secrets/auth/auth.json" "" (ne $v.auth.configSecret ""))
  "AGUIHUB_AUTH_ISSUER" $v.auth.issuer
  "AGUIHUB_AUTH_JWKS" $v.auth.jwks
  "AGUIHUB_AUTH_KEY_FILE" (ternary "/secrets/auth-key/key" "" (ne $v.auth.keySecret ""))
  "AGUIHUB_AUTH_AUDIENCE" $v.auth.audience
  "AGUIHUB_AUTH_COOKIE" $v.auth.cookie
  "AGUIHUB_INSECURE_NO_AUTH" (ternary "true" "" $v.insecureNoAuth)
  "AGUIHUB_AGENTS_FILE" (ternary "/secrets/agents/agents.json" "" (ne $v.agentsSecret ""))
  "AGUIHUB_AUDIT_LOG" (ternary "-" "" $v.auditLog)
  "AGUIHUB_MAX_CONNECTIONS" $v.limits.connections
  "AGUIHUB_MAX_CONNECTIONS_PER_SUBJECT" $v.limits.connectionsPerSubject
  "AGUIHUB_MAX_CONNECTIONS_PER_ADDRESS" $v.limits.connectionsPerAddress
  "AGUIHUB_MAX_ATTACH_RATE" $v.limits.attachRate
  "AGUIHUB_MAX_MESSAGE_RATE" $v.limits.messageRate
  "AGUIHUB_MAX_INGEST_EVENTS" $v.limits.ingestEvents
  "AGUIHUB_MAX_INGEST_BYTES" $v.limits.ingestBytes
}}
{{- range $name, $value := mergeOverwrite $all $v.env }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end }}
{{- if ne (toString $value) "" }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
