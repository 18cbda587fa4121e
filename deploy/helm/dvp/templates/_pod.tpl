{{- define "dvp.pod" -}}
{{- $root := .root -}}
serviceAccountName: {{ $root.Release.Name }}-dvp
automountServiceAccountToken: false
{{- with $root.Values.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: dvp
    image: "{{ $root.Values.image.repository }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}"
    imagePullPolicy: {{ $root.Values.image.pullPolicy | default "IfNotPresent" }}
    args: {{ toJson .args }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    {{- with $root.Values.environmentFrom }}
    envFrom:
      - secretRef: {name: {{ . }}, optional: true}
    {{- end }}
    env:
      - {name: DVP_LOG_FORMAT, value: json}
      {{- with $root.Values.databaseSecret }}
      - name: DVP_DATABASE_URL
        valueFrom: {secretKeyRef: {name: {{ . }}, key: uri}}
      {{- end }}
    {{- with .ports }}
    ports: {{ toJson . }}
    lifecycle:
      preStop: {sleep: {seconds: {{ $root.Values.drainSeconds }}}}
    livenessProbe:
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 10
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 2
      failureThreshold: 1
    {{- end }}
    {{- with .resources }}
    resources: {{ toJson . }}
    {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/dvp/dvp.toml, subPath: dvp.toml, readOnly: true}
      - {name: secrets, mountPath: /etc/dvp/secrets, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      {{- if .bank }}
      - {name: bank, mountPath: /var/lib/dvp/bank}
      {{- end }}
volumes:
  - name: config
    configMap: {name: {{ $root.Release.Name }}-dvp}
  - name: secrets
    # The service reads secrets of mode 0600, or 0640 for its group.
    secret: {secretName: {{ $root.Values.secretName }}, defaultMode: 0440, optional: true}
  - name: tmp
    emptyDir: {}
  {{- if .bank }}
  - name: bank
    persistentVolumeClaim: {claimName: {{ .bank }}}
  {{- end }}
{{- end -}}
