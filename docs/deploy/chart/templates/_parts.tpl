{{- define "ridgepoint.labels" -}}
app.kubernetes.io/name: ridgepoint
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ridgepoint.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ridgepoint.environment" -}}
envFrom:
  - secretRef:
      name: {{ .Values.existingSecret }}
env:
  - {name: RIDGEPOINT_HOME, value: /data}
  - {name: RIDGEPOINT_SIGN_IN, value: "1"}
  - {name: RIDGEPOINT_HTTPS, value: "1"}
  - {name: RIDGEPOINT_HOSTS, value: {{ .Values.host | quote }}}
  - {name: RIDGEPOINT_PUBLIC_URL, value: {{ printf "https://%s" .Values.host | quote }}}
  - {name: RIDGEPOINT_PREFIX, value: {{ .Values.prefix | quote }}}
  - {name: RIDGEPOINT_PROXIES, value: {{ .Values.proxies | quote }}}
  - {name: RIDGEPOINT_S3_BUCKET, value: {{ .Values.bucket | quote }}}
  {{- range $name, $value := .Values.environment }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
  {{- end }}
{{- end }}

{{- define "ridgepoint.pod-security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "ridgepoint.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "ridgepoint.mounts" -}}
- {name: data, mountPath: /data}
- {name: tmp, mountPath: /tmp}
{{- end }}
