module gangline.dev/tests/kubernetes/pause

go 1.24
