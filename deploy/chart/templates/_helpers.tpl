{{- /* the image of a service: list CONTEXT NAME DIGEST */ -}}
{{- define "gangline.image" -}}
{{- $context := index . 0 -}}
{{- $digest := index . 2 -}}
{{- $name := list $context.Values.image.prefix (index . 1) | compact | join "/" -}}
{{- $tagged := printf "%s:%s" $name ($context.Values.image.tag | default $context.Chart.AppVersion) -}}
{{- empty $digest | ternary $tagged (printf "%s@%s" $tagged $digest) -}}
{{- end }}
