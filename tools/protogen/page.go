package main

import (
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// preamble is what people with curl need to know besides the list.
const preamble = `# The API

*Generated from api/greylag/v1 by tools/protogen; do not edit.*

Every controller answers on its one port (7117), over HTTPS with the cluster's own CA. The same
procedures can be called in three ways:

- **JSON over HTTP**, as below: POST to ` + "`/greylag.v1.SERVICE/PROCEDURE`" + ` with ` + "`Content-Type: application/json`" + `.
- **gRPC**, with the files in api/greylag/v1.
- **Connect** (connectrpc.com), with the same files; this is what Greylag's own programs speak.

Any controller answers: followers forward changes to the leader.

The name of a procedure begins with a verb:

| verb | the procedure |
|---|---|
| List, Get | answers with one message; a long list has pages |
| Stream | answers with a stream of messages that ends by itself |
| Watch | answers with the present state, and then with each change |
| Create, Add, Set, Update, Remove, Submit, Cancel | changes the cluster |
| Import, Export | replaces or returns all accounts as a file |
| Forecast, Quote, Explain, Verify | computes an answer and changes nothing |

` + "`" + `make check` + "`" + ` compares the API with ` + "`" + `api/image.binpb` + "`" + ` (` + "`" + `buf breaking` + "`" + `). Until version 0.1.0 the API may
change: run ` + "`" + `make api-image` + "`" + ` and commit the image with the change.

## With curl

The caller proves who they are by a token of gauthd, which lasts a minute:

` + "```" + `
TOKEN=$(printf 'greylag token 1\n' | nc -U /run/greylag/auth.sock | cut -d' ' -f2)
CONTROLLER=controller1:7117
CA=/etc/greylag/ca.pem
` + "```" + `

Submit a job, look at it, cancel it:

` + "```sh" + `
api() {
  curl --silent --show-error --fail-with-body --cacert "$CA" --header "Authorization: Bearer $TOKEN" \
    --header 'Content-Type: application/json' --data "$2" "https://$CONTROLLER/greylag.v1.$1"
}

script=$(printf '#!/bin/sh\nhostname\n' | base64 -w0)
api JobService/SubmitJobs '{"requestId": "'$(date +%s%N)'", "jobs": [{"name": "hello", "script": "'$script'", "timeLimit": "600s"}]}'
api JobService/ListJobs '{"filter": {"mine": true}}'
api JobService/CancelJobs '{"filter": {"names": ["hello"], "mine": true}}'
` + "```" + `

In JSON, 64-bit integers are strings, bytes are base64, durations are seconds such as ` + "`\"600s\"`" + `, times are
RFC 3339, and fields that are zero are left out. A request with an unknown field or enum value is refused.

An error has an HTTP status, and a body like ` + "`{\"code\": \"not_found\", \"message\": \"no such job: 77\"}`" + `. These
headers go with it where they apply:

| header | says |
|---|---|
| Greylag-Hint | what to do about it |
| Greylag-Leader | which controller leads |
| Greylag-Code | ` + "`mismatch`" + `: the request id was used before, for another request (status 422). ` + "`too-large`" + `: the body is larger than 16 MiB, or than 64 KiB without token and certificate (status 413) |
| Retry-After | whole seconds to wait, with status 429 |

Give every change a request id of its own: then it can be sent again when the answer was lost, or
was 503, without being done twice. Procedures marked *stream* answer with Connect's enveloped messages
(` + "`Content-Type: application/connect+json`" + `); the others are plain.

`

// writePage writes the list of all procedures and messages.
func writePage(path string, files []protoreflect.FileDescriptor) error {
	var b strings.Builder
	b.WriteString(preamble)
	for _, f := range files {
		for i := range f.Services().Len() {
			writeService(&b, f.Services().Get(i))
		}
	}
	b.WriteString("## Messages\n\n")
	for _, f := range files {
		for i := range f.Messages().Len() {
			writeMessage(&b, f.Messages().Get(i))
		}
	}
	b.WriteString("## Enums\n\n")
	for _, f := range files {
		for i := range f.Enums().Len() {
			writeEnum(&b, f.Enums().Get(i))
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func writeEnum(b *strings.Builder, e protoreflect.EnumDescriptor) {
	fmt.Fprintf(b, "### %s\n\n%s\n| value | |\n|---|---|\n", e.Name(), comment(e))
	for i := range e.Values().Len() {
		fmt.Fprintf(b, "| %s | %s |\n", e.Values().Get(i).Name(), oneLine(comment(e.Values().Get(i))))
	}
	b.WriteString("\n")
}

func writeService(b *strings.Builder, s protoreflect.ServiceDescriptor) {
	fmt.Fprintf(b, "## %s\n\n%s\n| procedure | takes | answers | |\n|---|---|---|---|\n", s.Name(), comment(s))
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		stream := ""
		if m.IsStreamingServer() {
			stream = "stream of "
		}
		fmt.Fprintf(b, "| %s | %s | %s%s | %s |\n", m.Name(), link(m.Input()), stream, link(m.Output()), oneLine(comment(m)))
	}
	b.WriteString("\n")
}

func writeMessage(b *strings.Builder, m protoreflect.MessageDescriptor) {
	fmt.Fprintf(b, "### %s\n\n", m.Name())
	if text := comment(m); text != "" {
		b.WriteString(text + "\n")
	}
	if m.Fields().Len() == 0 {
		b.WriteString("No fields.\n\n")
		return
	}
	b.WriteString("| field | type | |\n|---|---|---|\n")
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		text := comment(f)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			text = fmt.Sprintf("one of `%s`: %s", o.Name(), text)
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", f.JSONName(), kind(f), oneLine(text))
	}
	b.WriteString("\n")
}

// kind is a field's type as it looks in JSON.
func kind(f protoreflect.FieldDescriptor) string {
	text := f.Kind().String()
	if f.Kind() == protoreflect.EnumKind {
		text = link(f.Enum())
	}
	if f.Kind() == protoreflect.MessageKind {
		switch f.Message().FullName() {
		case "google.protobuf.Timestamp":
			text = "time"
		case "google.protobuf.Duration":
			text = "duration"
		default:
			text = link(f.Message())
		}
	}
	if f.IsList() {
		text = "list of " + text
	}
	return text
}

func link(m protoreflect.Descriptor) string {
	return fmt.Sprintf("[%s](#%s)", m.Name(), strings.ToLower(string(m.Name())))
}

// comment is what stands before a declaration, or else behind it.
func comment(d protoreflect.Descriptor) string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := at.LeadingComments
	if text == "" {
		text = at.TrailingComments
	}
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "buf:lint:ignore") {
			continue
		}
		lines = append(lines, strings.TrimSpace(line)+"\n")
	}
	return strings.Join(lines, "")
}

func oneLine(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
