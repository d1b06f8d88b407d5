{{- define "gangline.image" -}}
{{- $image := .Values.image -}}
{{- $name := list $image.prefix "gangline" | compact | join "/" -}}
{{- $tagged := printf "%s:%s" $name ($image.tag | default .Chart.AppVersion) -}}
{{- empty $image.digest | ternary $tagged (printf "%s@%s" $name $image.digest) -}}
{{- end }}
