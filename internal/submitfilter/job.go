package submitfilter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/command"
)

// document is a JSON object.
type document = map[string]any

// scriptField and environmentField have another form than in the JSON of the API: the script is text,
// and the environment an object.
const scriptField, environmentField = "script", "environment"

// request returns what the program reads.
func request(caller Caller, spec *greylagv1.JobSpec) ([]byte, error) {
	job, err := documentOf(spec)
	if err != nil {
		return nil, err
	}
	job[scriptField] = string(spec.GetScript())
	environment := document{}
	for _, pair := range spec.GetEnvironment() {
		name, value, _ := strings.Cut(pair, "=")
		environment[name] = value
	}
	job[environmentField] = environment
	var b bytes.Buffer
	w := json.NewEncoder(&b)
	w.SetEscapeHTML(false)
	err = w.Encode(struct {
		Caller
		Job document `json:"job"`
	}{caller, job})
	return b.Bytes(), err
}

// documentOf returns the job as the API writes it in JSON, without script and environment.
func documentOf(spec *greylagv1.JobSpec) (document, error) {
	rest := proto.CloneOf(spec)
	rest.Script, rest.Environment = nil, nil
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(rest)
	if err != nil {
		return nil, err
	}
	job := document{}
	return job, decode(text, &job)
}

func decode(text []byte, into any) error {
	r := json.NewDecoder(bytes.NewReader(text))
	r.UseNumber()
	r.DisallowUnknownFields()
	if err := r.Decode(into); err != nil {
		return err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows the JSON object")
	}
	return nil
}

// reply is what the program answers.
type reply struct {
	Job     document `json:"job"`     // changed fields, as a JSON merge patch (RFC 7396)
	Refuse  string   `json:"refuse"`  // why the job is refused; "" accepts it
	Message string   `json:"message"` // for the user of an accepted job
}

// readReply reads an answer. An empty one accepts the job unchanged.
func readReply(output []byte) (r reply, err error) {
	if len(bytes.TrimSpace(output)) == 0 {
		return r, nil
	}
	if err := decode(output, &r); err != nil {
		return r, fmt.Errorf("its answer is not the expected JSON: %w", err)
	}
	return r, nil
}

// apply applies a merge patch to a job and describes the changes. A description never contains the script
// or the environment, which may be secret.
func apply(spec *greylagv1.JobSpec, patch document) (changes []string, err error) {
	if len(patch) == 0 {
		return nil, nil
	}
	before, err := documentOf(spec)
	if err != nil {
		return nil, err
	}
	script, environment, err := contents(spec, patch)
	if err != nil {
		return nil, err
	}
	patch = maps.Clone(patch)
	delete(patch, scriptField)
	delete(patch, environmentField)
	text, err := json.Marshal(merge(before, patch))
	if err != nil {
		return nil, err
	}
	changed := &greylagv1.JobSpec{}
	if err := protojson.Unmarshal(text, changed); err != nil {
		return nil, fmt.Errorf("its answer is not a job: %s", strings.ReplaceAll(err.Error(), "\u00a0", " "))
	}
	after, err := documentOf(changed)
	if err != nil {
		return nil, err
	}
	changes = compare("", before, after)
	if !bytes.Equal(script, spec.GetScript()) {
		changes = append(changes, scriptField)
	}
	if !slices.Equal(environment, spec.GetEnvironment()) {
		changes = append(changes, environmentField)
	}
	changed.Script, changed.Environment = script, environment
	proto.Reset(spec)
	proto.Merge(spec, changed)
	return changes, nil
}

// contents returns the script and the environment after the patch.
func contents(spec *greylagv1.JobSpec, patch document) (script []byte, environment []string, err error) {
	script, environment = spec.GetScript(), spec.GetEnvironment()
	if value, present := patch[scriptField]; present {
		text, ok := value.(string)
		if !ok {
			return nil, nil, fmt.Errorf("its answer is not a job: %s is not a string", scriptField)
		}
		script = []byte(text)
	}
	value, present := patch[environmentField]
	if !present {
		return script, environment, nil
	}
	set, ok := value.(document)
	if !ok {
		return nil, nil, fmt.Errorf("its answer is not a job: %s is not an object", environmentField)
	}
	environment = slices.DeleteFunc(slices.Clone(environment), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, replaced := set[name]
		return replaced
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		switch value := set[name].(type) {
		case nil: // removed
		case string:
			environment = append(environment, name+"="+value)
		default:
			return nil, nil, fmt.Errorf("its answer is not a job: the variable %q is neither a string nor null", name)
		}
	}
	return script, environment, nil
}

// merge applies a merge patch to an object (RFC 7396) and returns the result.
func merge(object, patch document) document {
	merged := maps.Clone(object)
	if merged == nil {
		merged = document{}
	}
	for name, value := range patch {
		inner, isObject := value.(document)
		switch {
		case value == nil:
			delete(merged, name)
		case isObject:
			old, _ := merged[name].(document)
			merged[name] = merge(old, inner)
		default:
			merged[name] = value
		}
	}
	return merged
}

// compare describes the fields in which two objects differ, by name.
func compare(prefix string, before, after document) (changes []string) {
	names := document{}
	maps.Copy(names, before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, isObject := before[name].(document)
		next, stays := after[name].(document)
		switch {
		case reflect.DeepEqual(before[name], after[name]):
		case isObject || stays:
			changes = append(changes, compare(prefix+name+".", old, next)...)
		default:
			changes = append(changes, command.Sanitize(fmt.Sprintf("%s: %s → %s", prefix+name, word(before[name]), word(after[name]))))
		}
	}
	return changes
}

// maxWord is the maximum length of a value in a description, in characters.
const maxWord = 60

// word formats a value for a description.
func word(value any) string {
	var text string
	switch value := value.(type) {
	case nil:
		return "unset"
	case string:
		text = value
	default:
		b, _ := json.Marshal(value) // it was read from JSON
		text = string(b)
	}
	if r := []rune(text); len(r) > maxWord {
		text = string(r[:maxWord]) + "…"
	}
	return text
}
