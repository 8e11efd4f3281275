"""`kernelroof estimate`: the model-level card, or one JSON object."""

from __future__ import annotations

import argparse

from kernelroof.models.dtypes import RUN_DTYPES, canonical
from kernelroof.models.errors import NoClosedFormError, UsageError
from kernelroof.models.presets import display_name, load_config
from kernelroof.models.record import estimate_record
from kernelroof.models.spec import ModelSpec, read_spec
from kernelroof.models.workload import Workload, make_workload
from kernelroof.profile.option_checks import check_one_device
from kernelroof.roofline.ceilings import Ceilings


def run(args: argparse.Namespace) -> int:
    """Print the estimate of `args`; see `profile.cli` for the options."""
    config = load_config(args.model)
    if args.traced:
        from kernelroof.profile.traced_estimate import run_traced

        return run_traced(args, config)
    try:
        spec = read_spec(config, display_name(args.model))
    except NoClosedFormError as error:
        from kernelroof.profile.traced_estimate import run_traced

        return run_traced(args, config, error.what)
    if args.calibrate is not None:
        from kernelroof.profile.calibrated import calibrated_record, run_dtype

        args.dtype = args.dtype or run_dtype(args.calibrate)
    workload = workload_from(args, spec)
    ceilings = device_from(args, workload)
    record = estimate_record(
        spec,
        workload,
        device=ceilings.name if ceilings else None,
        flop_s=ceilings.flop_s if ceilings else None,
        byte_s=ceilings.byte_s if ceilings else None,
        memory_bytes=ceilings.memory_bytes if ceilings else None,
        origin=f"{ceilings.origin}: {ceilings.note}" if ceilings else None,
        quantised_peaks=quantised_peaks_from(args),
        checkpoint=stored(args.model, spec),
        gpu_key=_key_of(args),
    )
    if args.calibrate is not None:
        record["calibrated"] = calibrated_record(args.calibrate, config, workload)
    if args.json:
        import json

        print(json.dumps(record, indent=2, allow_nan=False))
        return 0
    from kernelroof.roofline.card import estimate_card

    print(estimate_card(record))
    return 0


def _key_of(args: argparse.Namespace) -> str | None:
    if args.gpu is None:
        return None
    from kernelroof.roofline.gpus import find_gpu

    return find_gpu(args.gpu).key


def workload_from(args: argparse.Namespace, spec: ModelSpec) -> Workload:
    """The checked workload that the shared options ask for."""
    return make_workload(
        spec,
        batch=args.batch,
        prompt=args.prompt,
        output=args.output,
        dtype=args.dtype,
        weights_dtype=args.weights_dtype,
        kv_dtype=args.kv_dtype,
        attn=args.attn,
        cache=args.cache,
        mask=args.mask,
        head=args.head,
        embedding=args.embedding,
        overhead=args.overhead,
    )


def quantised_peaks_from(args: argparse.Namespace) -> dict[str, float]:
    """Peaks for products of quantised operands: of `--gpu`, or the user's own for every class."""
    if args.quantised_tflops is not None:
        if args.peak_tflops is None:
            raise UsageError("--quantised-tflops stands beside --peak-tflops", "Give both, or --gpu.")
        check_one_device(args)
        return dict.fromkeys(("fp8", "int8", "fp4"), args.quantised_tflops * 1e12)
    if args.gpu is None:
        return {}
    from kernelroof.roofline.gpus import find_gpu, quantised_peaks

    return quantised_peaks(find_gpu(args.gpu))


def stored(model: str, spec: ModelSpec) -> dict[str, object] | None:
    """What the safetensors files beside the config hold, next to the closed form; None where there are none."""
    import os

    folder = model if os.path.isdir(model) else os.path.dirname(model) if os.path.isfile(model) else None
    if folder is None:
        return None
    from kernelroof.models.checkpoint import checkpoint_record

    return checkpoint_record(folder or ".", spec)


def device_from(args: argparse.Namespace, workload: Workload) -> Ceilings | None:
    """Peaks of `--gpu`, or the user's own figures, or None when neither is given."""
    given = given_from(args, workload.dtype)
    if given is not None or args.gpu is None:
        return given
    from kernelroof.roofline.gpus import ceilings_for, find_gpu

    return ceilings_for(find_gpu(args.gpu), workload.dtype)


def given_from(args: argparse.Namespace, dtype: str | None) -> Ceilings | None:
    """The user's own figures as ceilings of a dtype (None: `--dtype`, else bfloat16); None where none is given.

    Raises:
        UsageError: a figure that is missing or absurd, an unknown dtype, or `--gpu` beside them.
    """
    if dtype is None:
        dtype = canonical(args.dtype, "--dtype", RUN_DTYPES) if args.dtype is not None else "bfloat16"
    check_one_device(args)
    own = (args.peak_tflops, args.bandwidth_gbs)
    if all(x is None for x in (*own, args.memory_gb)):
        return None
    if any(x is None for x in own):
        raise UsageError(
            "own figures need --peak-tflops and --bandwidth-gbs together", "Add --memory-gb to learn what fits."
        )
    return Ceilings(
        name="your figures",
        flop_s=args.peak_tflops * 1e12,
        byte_s=args.bandwidth_gbs * 1e9,
        cache_byte_s=None,
        dtype=dtype,
        origin="given",
        memory_bytes=round(args.memory_gb * 1e9) if args.memory_gb else None,
        note="from the command line",
    )
