package manifests

import (
	"bytes"
	"os"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// objects reads the documents of a manifest. A field that Kubernetes does not know, or that is given
// twice, fails the test.
func objects(t *testing.T, name string) (all []any) {
	t.Helper()
	text, err := os.ReadFile("../../docs/deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(part, &kind); err != nil {
			t.Fatal(err)
		}
		into := map[string]any{"ConfigMap": new(core.ConfigMap), "DaemonSet": new(apps.DaemonSet), "Pod": new(core.Pod)}[kind.Kind]
		if into == nil {
			t.Fatalf("%s: %q is not expected", name, kind.Kind)
		}
		if err := yaml.UnmarshalStrict(part, into); err != nil {
			t.Fatalf("%s: %s: %v", name, kind.Kind, err)
		}
		all = append(all, into)
	}
	return all
}

// checkVolumes fails unless the mounts of the containers are of volumes that are there.
func checkVolumes(t *testing.T, spec *core.PodSpec) {
	t.Helper()
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
	}
}

// mountOf returns the mount of a host's folder, and how it is propagated.
func mountOf(spec *core.PodSpec, hostPath string) (at string, how core.MountPropagationMode) {
	for _, v := range spec.Volumes {
		for _, m := range spec.Containers[0].VolumeMounts {
			if v.HostPath != nil && v.HostPath.Path == hostPath && m.Name == v.Name && m.MountPropagation != nil {
				at, how = m.MountPath, *m.MountPropagation
			}
		}
	}
	return at, how
}

func TestDaemonSet(t *testing.T) {
	all := objects(t, "daemonset.yaml")
	set, ok := all[1].(*apps.DaemonSet)
	if !ok {
		t.Fatalf("%T", all[1])
	}
	config, ok := all[0].(*core.ConfigMap)
	if !ok || config.Data["config.yaml"] == "" || config.Name != "hmcfs" || config.Namespace != set.Namespace {
		t.Errorf("the configuration is %+v", all[0])
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("the selector %s=%s does not select its pods", key, value)
		}
	}
	spec := &set.Spec.Template.Spec
	checkVolumes(t, spec)
	if at, how := mountOf(spec, "/mnt/hmcfs"); at != "/mnt/hmcfs" || how != core.MountPropagationBidirectional {
		t.Errorf("the mount is at %q, propagated %q", at, how)
	}
	main := spec.Containers[0]
	if spec.RuntimeClassName == nil || *spec.RuntimeClassName != "nvidia" || !*main.SecurityContext.Privileged {
		t.Error("the daemon does not get the cards, or may not mount")
	}
	if !slices.Contains(main.Env, core.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}) {
		t.Error("the daemon does not see every card")
	}
	if _, taken := main.Resources.Limits["nvidia.com/gpu"]; taken {
		t.Error("the daemon takes cards from the scheduler")
	}
}

func TestPod(t *testing.T) {
	pod, ok := objects(t, "pod.yaml")[0].(*core.Pod)
	if !ok || len(pod.Spec.Containers) != 1 || len(pod.Spec.InitContainers) != 0 {
		t.Fatal("the pod has a sidecar")
	}
	checkVolumes(t, &pod.Spec)
	if at, how := mountOf(&pod.Spec, "/mnt/hmcfs"); at != "/mnt/hmcfs" || how != core.MountPropagationHostToContainer {
		t.Errorf("the mount is at %q, propagated %q", at, how)
	}
	if c := pod.Spec.Containers[0].SecurityContext; c != nil {
		t.Errorf("the pod has privileges: %+v", c)
	}
	if n := pod.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]; n.Value() != 1 {
		t.Errorf("the pod has %v cards", n.Value())
	}
}
