{{- define "skillhouse.labels" -}}
app.kubernetes.io/name: skillhouse
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .capability }}
skillhouse/capability: {{ . }}
{{- end }}
{{- end }}

{{/* What PodSecurity's level "restricted" asks of a pod, and a root that no one writes to. */}}
{{- define "skillhouse.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ .root.Release.Name }}
{{- with .own.runtimeClass }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .own.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "skillhouse.labels" . | nindent 8 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  runAsGroup: 65534
  fsGroup: 65534
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "skillhouse.container" -}}
imagePullPolicy: IfNotPresent
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* A volume of Kubernetes belongs to root and a group that writes, where nothing that decides may be kept. In each
that is written to is a directory of this user alone, and only that is mounted, as `subPath: own`. */}}
{{- define "skillhouse.own" -}}
- name: own
  image: {{ .image | quote }}
  {{- include "skillhouse.container" . | nindent 2 }}
  command:
    - mkdir
    - -p
    - -m
    - "700"
    {{- range .volumes }}
    - /volumes/{{ . }}/own
    {{- end }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    {{- range .volumes }}
    - {name: {{ . }}, mountPath: /volumes/{{ . }}}
    {{- end }}
{{- end }}

{{/* The kubelet asks by the pod's address, which `up` does not answer to: localhost is a name it has. */}}
{{- define "skillhouse.probes" -}}
livenessProbe:
  httpGet: {{- include "skillhouse.get" (dict "path" "/healthz" "port" .port) | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {{- include "skillhouse.get" (dict "path" "/readyz" "port" .port) | nindent 4 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
startupProbe:
  httpGet: {{- include "skillhouse.get" (dict "path" "/readyz" "port" .port) | nindent 4 }}
  periodSeconds: 2
  failureThreshold: 60
# The balancers hear of it first, then the process: it gets SIGTERM, lets calls end and takes no new ones.
lifecycle:
  preStop:
    sleep: {seconds: 5}
{{- end }}

{{- define "skillhouse.get" -}}
path: {{ .path }}
port: {{ .port }}
httpHeaders:
  - {name: Host, value: localhost}
{{- end }}

{{/* A volume of what is read by all: an image by its digest, a claim, or an empty directory. */}}
{{- define "skillhouse.volume" -}}
- name: {{ .name }}
{{- if .from.image }}
  image: {reference: {{ .from.image | quote }}, pullPolicy: IfNotPresent}
{{- else if .from.claim }}
  persistentVolumeClaim: {claimName: {{ .from.claim }}, readOnly: true}
{{- else }}
  emptyDir: {sizeLimit: 2Gi}
{{- end }}
{{- end }}

{{/* Where executors ask replicas. With certificates by the whole name: a wildcard in one needs two dots after it. */}}
{{- define "skillhouse.callback" -}}
{{- if .root.Values.executorTls.replicas.secret -}}
https://{{ .pod }}.{{ .root.Release.Name }}-replicas.{{ .root.Release.Namespace }}.svc:8701/rpc
{{- else -}}
http://{{ .pod }}.{{ .root.Release.Name }}-replicas:8701/rpc
{{- end }}
{{- end }}

{{/* A certificate, its key and who signed that of the other side, as cert-manager writes them. The whole
directory, so that new ones arrive without a restart. */}}
{{- define "skillhouse.tls.mount" -}}
{{- if .secret }}
- {name: tls, mountPath: /run/secrets/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "skillhouse.tls.volume" -}}
{{- if .secret }}
- name: tls
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end }}

{{- define "skillhouse.scaling" -}}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  labels: {{- include "skillhouse.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: {{ .kind }}, name: {{ .name }}}
  minReplicas: {{ .scaling.min }}
  maxReplicas: {{ .scaling.max }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: {type: Utilization, averageUtilization: {{ .scaling.cpuPercent }}}
{{- with .scaling.concurrency }}
    - type: Pods
      pods:
        metric: {name: {{ .metric }}}
        target: {type: AverageValue, averageValue: {{ .perPod | quote }}}
{{- end }}
  behavior:
    # What goes drains first; a queue that comes and goes must not take it away at once.
    scaleDown: {stabilizationWindowSeconds: 300}
{{- end }}

{{- define "skillhouse.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: {{- include "skillhouse.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .most }}
  selector:
    matchLabels: {{- include "skillhouse.labels" . | nindent 6 }}
{{- end }}

{{- define "skillhouse.resolver" -}}
{{- with .Values.resolver }}
- to: {{- toYaml . | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
{{- end }}
