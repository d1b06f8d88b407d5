"""The flags of tf_cnn_benchmarks: names, types and defaults of upstream, absl's way of writing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gangline.errors import UserError

_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")

_USED = """
bool    eval forward_only print_training_accuracy use_fp16 fp16_enable_auto_loss_scale xla xla_compile=False
bool    distortions=False
bool    datasets_use_prefetch=True
int     batch_size task_index=0
int     num_batches num_warmup_batches datasets_num_private_threads num_intra_threads=None
int     datasets_prefetch_buffer_size num_gpus batch_group_size=1
int     display_every=10
int     tf_random_seed=1234
float   num_epochs display_perf_ewma init_learning_rate fp16_loss_scale=None
float   momentum rmsprop_decay rmsprop_momentum adam_beta1=0.9
float   weight_decay=0.00004
float   rmsprop_epsilon=1.0
float   adam_beta2=0.999
float   adam_epsilon=1e-8
str     data_dir data_name all_reduce_spec=None
str     horovod_device job_name ps_hosts worker_hosts=
str     model=trivial
enum    device=gpu|cpu|CPU|GPU
enum    data_format=NCHW|NHWC
enum    optimizer=sgd|momentum|rmsprop|adam
enum    loss_type_to_report=total_loss|base_loss
enum    variable_update=parameter_server|replicated|distributed_replicated|independent|\
distributed_all_reduce|collective_all_reduce|horovod
"""

_WITHOUT_MEANING = """
bool    freeze_when_forward_only hierarchical_copy collect_eval_results_async use_numa_affinity=False
bool    datasets_repeat_cached_sample datasets_use_caching datasets_sloppy_parallel_interleave=False
bool    timestamped_allocator use_python32_barrier ml_perf sync_on_finish staged_vars=False
bool    force_gpu_compatible single_l2_loss_op use_resource_vars compute_lr_on_cpu=False
bool    sparse_to_dense_grads mkl fp16_vars=False
bool    use_datasets use_tf_layers compact_gradient_transfer use_chrome_trace_format=True
bool    winograd_nonfused batchnorm_persistent fuse_decode_and_crop distort_color_in_yiq=True
bool    enable_optimizations cross_replica_sync=True
bool    use_unified_memory allow_growth=None
int     eval_interval_secs eval_batch_size per_gpu_thread_count gradient_repacking num_inter_threads=0
int     gpu_kt_max_interval gpu_kt_max_bytes gpu_kt_max_pending kmp_blocktime=0
int     agg_small_grads_max_bytes summary_verbosity save_summaries_steps save_model_secs=0
int     eval_during_training_every_n_steps num_eval_batches autotune_threshold save_model_steps=None
int     datasets_parallel_interleave_cycle_length datasets_parallel_interleave_prefetch=None
int     multi_device_iterator_max_buffer_size kmp_settings allreduce_merge_scope=1
int     agg_small_grads_max_group=10
int     fp16_inc_loss_scale_every_n=1000
int     max_ckpts_to_keep=5
int     trt_max_workspace_size_bytes=4294967296
float   eval_during_training_every_n_epochs num_eval_epochs stop_at_top_1_accuracy=None
float   gradient_clip resnet_base_lr=None
float   num_epochs_per_decay learning_rate_decay_factor num_learning_rate_warmup_epochs=0
float   minimum_learning_rate gpu_memory_frac_for_testing=0
list    eval_during_training_at_specified_steps eval_during_training_at_specified_epochs=
str     gpu_indices trace_file=
str     resize_method=bilinear
str     input_preprocessor=default
str     gpu_thread_mode=gpu_private
str     tfprof_file graph_file partitioned_graph_file_prefix piecewise_learning_rate_schedule=None
str     debugger rewriter_config controller_host train_dir backbone_model_path=None
str     benchmark_log_dir benchmark_test_id=None
str     kmp_affinity=granularity=fine,verbose,compact,1,0
str     server_protocol=grpc
str     eval_dir=/tmp/tf_cnn_benchmarks/eval
enum    network_topology=dgx1|gcp_v100
enum    variable_consistency=strong|relaxed
enum    local_parameter_device=gpu|cpu|CPU|GPU
enum    trt_mode=|FP32|FP16|INT8
"""

_OURS = """
int     num_mounts=1
str     mount_prefix=
str     json=
bool    use_bf16=False
"""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    Attributes:
        kind: bool, int, float, str, list or enum.
        default: None where upstream decides later.
        choices: of an enum.
        has_meaning: whether it changes what this program does.
    """

    kind: str
    default: Any
    choices: tuple[str, ...] = ()
    has_meaning: bool = True


def _table(text: str, *, has_meaning: bool = True) -> dict[str, Flag]:
    flags = {}
    for line in filter(None, text.splitlines()):
        kind, *names = line.split()
        names[-1], _, default = names[-1].partition("=")
        choices = tuple(default.split("|")) if kind == "enum" else ()
        value = _value("", Flag(kind, None, choices), choices[0] if choices else default)
        for name in names:
            flags[name] = Flag(kind, value, choices, has_meaning)
    return flags


def _value(name: str, flag: Flag, text: str) -> Any:
    try:
        if text == "None":
            return None
        if flag.kind == "bool":
            if text.lower() not in _TRUE + _FALSE:
                raise ValueError
            return text.lower() in _TRUE
        if flag.kind in ("int", "float"):
            return {"int": int, "float": float}[flag.kind](text)
    except ValueError:
        noun = {"bool": "True or False", "int": "a whole number", "float": "a number"}[flag.kind]
        raise UserError(f"--{name} must be {noun} (found `{text}`)") from None
    if flag.kind == "list":
        return [part for part in text.split(",") if part]
    if flag.choices and text not in flag.choices:
        raise UserError(f"--{name} must be one of {', '.join(filter(None, flag.choices))} (found `{text}`)")
    return text


FLAGS: dict[str, Flag] = _table(_USED) | _table(_WITHOUT_MEANING, has_meaning=False) | _table(_OURS)
"""Every flag of upstream; --num_mounts and --mount_prefix of NetApp's variant; --json and --use_bf16."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The values of all flags, as attributes.

    Attributes:
        values: by name.
        given: names that the user wrote, in that order.
    """

    values: dict[str, Any]
    given: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:
        if name in FLAGS:
            return self.values[name]
        raise AttributeError(name)

    def without_meaning(self) -> list[str]:
        """Return the flags that were given and change nothing here."""
        return [name for name in self.given if not FLAGS[name].has_meaning]


def parse(words: Sequence[str]) -> Parameters:
    """Return the values of a command line, written as absl takes it.

    One or two dashes; ``--name=value`` or ``--name value``; a boolean as ``--name``, ``--noname`` or
    ``--name=True``, never followed by its value; ``--`` ends the flags.

    Raises:
        UserError: a flag is unknown, has a bad value, or words are left over.
    """
    values = {name: flag.default for name, flag in FLAGS.items()}
    given: dict[str, None] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            _refuse_left_over(left, given)
            break
        if not word.startswith("-") or word == "-":
            _refuse_left_over([word], given)
        name, equals, text = word.lstrip("-").partition("=")
        negated = name not in FLAGS and name.startswith("no") and FLAGS.get(name[2:])
        if negated and negated.kind == "bool" and not equals:
            name, equals, text = name[2:], "=", "False"
        flag = FLAGS.get(name)
        if flag is None:
            near = get_close_matches(name, FLAGS, n=1)
            raise UserError(f"unknown flag `--{name}`", hint=f"did you mean `--{near[0]}`?" if near else "")
        if not equals and flag.kind == "bool":
            text = "True"
        elif not equals:
            if not left:
                raise UserError(f"--{name} needs a value")
            text = left.pop(0)
        values[name] = _value(name, flag, text)
        given[name] = None
    return Parameters(values, tuple(given))


def _refuse_left_over(words: list[str], given: dict[str, None]) -> None:
    if not words:
        return
    last = next(reversed(given), "")
    after_flag = last and FLAGS[last].kind == "bool"
    value = words[0].lstrip("=")
    raise UserError(
        f"`{words[0]}` is no flag, and words beside flags are not taken",
        hint=f"write `--{last}={value}` without a space" if after_flag else "",
    )
