package main

import (
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// preamble is the guide for authors of clients that precedes the reference.
const preamble = `# API for clients

*Generated from api/greylag/v1 by tools/protogen; do not edit.*

Every controller serves the API on its port (7117), over HTTPS with the CA of the cluster. Send a
request to any controller: followers forward changes to the leader.

## Connect

Choose a protocol. All three have the same procedures and messages:

| protocol | use |
|---|---|
| JSON over HTTP | POST to ` + "`" + `/greylag.v1.SERVICE/PROCEDURE` + "`" + ` with ` + "`" + `Content-Type: application/json` + "`" + ` |
| gRPC | generate a client from api/greylag/v1 |
| Connect (connectrpc.com) | generate a client from api/greylag/v1; Greylag's own programs use it |

Send a token with every request, in the header ` + "`" + `Authorization: Bearer TOKEN` + "`" + `. gauthd issues tokens
to local users on its socket; a token is valid for one minute:

` + "```" + `
TOKEN=$(printf 'greylag token 1\n' | nc -U /run/greylag/auth.sock | cut -d' ' -f2)
CONTROLLER=controller1:7117
CA=/etc/greylag/client.d/ca.pem
` + "```" + `

JSON follows the rules of Protocol Buffers: 64-bit integers are strings, bytes are base64, durations
are seconds such as ` + "`" + `"600s"` + "`" + `, and times are RFC 3339. Fields with zero values are omitted. The
server refuses a request with an unknown field or enum value, and names it.

## Submit, list and cancel a job

` + "```" + `sh
api() {
  curl --silent --show-error --fail-with-body --cacert "$CA" --header "Authorization: Bearer $TOKEN" \
    --header 'Content-Type: application/json' --data "$2" "https://$CONTROLLER/greylag.v1.$1"
}

script=$(printf '#!/bin/sh\nhostname\n' | base64 -w0)
api JobService/SubmitJobs '{"requestId": "'$(date +%s%N)'", "jobs": [{"name": "hello", "script": "'$script'", "timeLimit": "600s"}]}'
api JobService/ListJobs '{"filter": {"mine": true}}'
api JobService/CancelJobs '{"filter": {"names": ["hello"], "mine": true}}'
` + "```" + `

Set a new ` + "`" + `requestId` + "`" + ` for each change. If the answer is lost or has status 503, send the request
again with the same ID: the cluster applies it once and returns the first response.

## Watch jobs

` + "`" + `JobService/WatchJobs` + "`" + ` streams the present state of the selected jobs. ` + "`" + `caughtUp` + "`" + ` marks the end of
that state; each later message holds changes. With ` + "`" + `untilEnded` + "`" + ` the stream closes when all selected
jobs have ended. After a lost connection, call it again: it starts with the present state.

Streams use Connect's enveloped messages (` + "`" + `Content-Type: application/connect+json` + "`" + `) or gRPC. All
other procedures take and return plain JSON.

## Handle errors

An error has an HTTP status and a body like ` + "`" + `{"code": "not_found", "message": "no such job: 77"}` + "`" + `.
The codes are those of Connect and gRPC. A change of several jobs returns one [Outcome](#outcome)
for each job instead. These headers come with an error where they apply:

| header | meaning |
|---|---|
| Greylag-Hint | a fix |
| Greylag-Leader | the controller that leads |
| Greylag-Code | ` + "`" + `mismatch` + "`" + `: the request ID was used for another request (status 422). ` + "`" + `too-large` + "`" + `: the body exceeds 16 MiB, or 64 KiB without token and certificate (status 413) |
| Retry-After | whole seconds to wait, with status 429 |

## Procedure names

The name of a procedure begins with a verb:

| verb | the procedure |
|---|---|
| List, Get | returns one message; a long list has pages |
| Stream | returns a stream of messages that ends by itself |
| Watch | streams the present state, and then each change |
| Create, Add, Set, Update, Change, Remove, Submit, Cancel | changes the cluster |
| Import, Export | replaces or returns all accounts as a file |
| Forecast, Quote, Explain, Verify | computes an answer and changes nothing |

` + "`" + `make check` + "`" + ` compares the API with ` + "`" + `api/image.binpb` + "`" + ` (` + "`" + `buf breaking` + "`" + `). Until version 0.1.0 the API
may change: run ` + "`" + `make api-image` + "`" + ` and commit the image with the change.

# Reference

A *stream* returns several messages. A field that is *one of* a name excludes the others of
that name.

`

// writePage writes the guide and the list of all procedures, messages and enums.
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
	fmt.Fprintf(b, "## %s\n\n%s\n| procedure | request | answer | |\n|---|---|---|---|\n", s.Name(), comment(s))
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

// kind returns a field's type as it looks in JSON.
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

// comment returns the comment before a declaration, or else the one behind it.
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
